import math
import time

import pytest

from restless_bandits import forecasts
from restless_bandits.forecasts import Pace, duration, from_part, paced, warning


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
    pace = Pace(10**6)
    for done in (10, 100, 400, 900, 2000):
        pace.mark(done, 0.02 * done**power)
    assert pace.total == pytest.approx(0.02 * 10 ** (6 * power))


def test_a_pace_with_little_to_go_by():
    pace = Pace(8000)
    assert pace.total == 0.0
    pace.mark(0, 0.5)
    assert pace.total == 0.0
    pace.mark(1000, 2.0)
    assert pace.total == 2.0 * 4
    pace.mark(8000, 5.0)
    assert pace.total == 5.0


def busy(seconds):
    until = time.process_time() + seconds
    while time.process_time() < until:
        pass


def test_a_part_stands_for_all():
    tried = []

    def work(n):
        tried.append(n)
        busy(0.01 * n)

    assert from_part(9, work) == 0.0
    assert from_part(200, work) == pytest.approx(2.0, rel=0.5)
    assert tried == [4]


def test_what_looks_long_is_tried_again(monkeypatch):
    monkeypatch.setattr(forecasts, "LONG", 0.5)
    tried = []

    def work(n):
        tried.append(n)
        busy(0.05 if len(tried) == 1 else 0.0)

    assert from_part(50, work) < 0.5
    assert tried == [1, 1]


def test_parts_that_take_long_are_told_once(monkeypatch):
    monkeypatch.setattr(forecasts, "SOON", 0.0)
    monkeypatch.setattr(forecasts, "LONG", 0.0)
    lines = []
    assert list(paced("abc", "three letters", lines.append)) == ["a", "b", "c"]
    assert len(lines) == 1
    assert lines[0].endswith("three letters")
    assert paced("abc", "", None) == "abc"
