import math
from types import SimpleNamespace

import pytest

from restless_bandits._internal import progress
from restless_bandits._internal.progress import Pace, ProgressWatch, duration, from_part, paced, warning


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.0334, "0.033 s"), (59.6, "60 s"), (119, "119 s"), (150, "2.5 min"), (3000, "50 min"), (8000, "2.2 h")],
)
def test_durations(seconds, words):
    assert duration(seconds) == words


def test_only_what_is_long_is_told():
    assert warning(9.9) is warning(math.inf) is None
    assert warning(40) == "this will take about 40 s"
    assert warning(40, "many arms") == "this will take about 40 s: many arms"


@pytest.mark.parametrize("power", [0.0, 0.3, 0.5, 1.0])
def test_a_power_law_is_carried_on(power):
    pace, limited = Pace(10**6), Pace(10**6, 0.5)
    for done in (10, 100, 400, 900, 2000):
        pace.mark(done, 0.02 * done**power)
        limited.mark(done, 0.02 * done**power)
    assert pace.total == pytest.approx(0.02 * 10 ** (6 * power))
    assert limited.total == pytest.approx(0.02 * 2000**power * 500 ** min(power, 0.5))


def test_a_pace_with_little_to_go_by():
    pace = Pace(8000)
    assert pace.total == 0.0
    pace.mark(0, 0.5)
    assert pace.total == 0.0
    pace.mark(1000, 2.0)
    assert pace.total == 2.0 * 4
    pace.mark(8000, 5.0)
    assert pace.total == 5.0


@pytest.fixture
def clock(monkeypatch):
    """A time that passes only when somebody says so."""
    made = SimpleNamespace(now=0.0)
    read = SimpleNamespace(monotonic=lambda: made.now, process_time=lambda: made.now)
    monkeypatch.setattr(progress, "time", read)
    return made


def test_a_part_stands_for_all(clock):
    tried = []

    def work(n):
        tried.append(n)
        clock.now += 0.01 * n

    assert from_part(9, work) == 0.0
    assert from_part(200, work) == pytest.approx(2.0)
    assert from_part(30, work) == pytest.approx(0.3)
    assert tried == [4, 1]


def test_what_looks_long_is_tried_again(clock):
    tried = []

    def work(n):
        tried.append(n)
        clock.now += 1.0 if len(tried) == 1 else 0.1

    assert from_part(50, work) == pytest.approx(5.0)
    assert tried == [1, 1]


def test_parts_that_take_long_are_told_once(clock):
    lines = []
    for _ in paced("x" * 40, "forty letters", lines.append):
        clock.now += 0.6
    assert lines == ["this will take about 24 s: forty letters"]
    for _ in paced("x" * 10, "ten letters", lines.append):
        clock.now += 0.6
    assert len(lines) == 1
    assert paced("abc", "", None) == "abc"


def test_a_clock_of_ones_own():
    # Ten seconds pass for each part by that clock, whatever the time.
    lines = []
    assert list(paced("abcd", "letters", lines.append, iter([0, 0, 10, 20, 30]).__next__)) == list("abcd")
    assert lines == ["this will take about 40 s: letters"]


@pytest.mark.parametrize(("times", "words"), [(1, []), (3, ["this will take about 15 s: steps"])])
def test_what_goes_on_is_watched(clock, times, words):
    lines = []
    watch = ProgressWatch(500, lines.append)
    for done in range(500):
        clock.now += 0.01
        watch.at(done, "steps", lambda: times)
    assert lines == words
