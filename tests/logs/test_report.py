"""The page about a fit: what it says, that it needs nothing else, and that names cannot write into it."""

import dataclasses
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.logs.expected_gain import expected_gain, interval
from tests.logs.logs import THREE, logged, paths
from tests.logs.test_checks import moved, plain, trace_of
from tests.logs.test_season import HOURLY, daily

VOID = {"meta", "br"}


class Page(HTMLParser):
    """Reads a page, and refuses tags that do not close in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.words = [], set(), []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert not {name for name, _ in attrs} & {"src", "href", "onload", "onclick"}
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.words).split())


def test_a_log_that_fits():
    found = rb.data.fit(logged(THREE, paths(THREE, 1500, seed=3), seed=4))
    text = rb.data.report(found, draws=10)
    page = Page(text)
    assert "The log does not reject the model" in page.text
    assert "Over always using 'alpha', a player could gain" in page.text
    assert "twelfth of the log" in page.text
    for arm in found.arms:
        stay = f"{arm.transitions[0, 0]:.3f} ± {arm.standard_errors[0, 0]:.3f}"
        assert stay in page.text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)
    # A raster, a bar chart and a picture of τ for each arm, and the intervals.
    assert text.count("<svg") == 1 + 2 + 2 + 1
    assert "http" not in text
    assert "prefers-color-scheme: dark" in text
    assert rb.data.report(found, draws=10) == text


def test_a_log_that_does_not_fit():
    found = rb.data.fit_season(daily(), "24h", phases=2)
    text = rb.data.report(found, draws=10)
    page = Page(text)
    assert "The log rejects a chain for each phase" in page.text
    assert "give more --phases" in page.text
    assert "by hour of the day" in page.text
    assert "which the log rejects," in page.text
    assert "0000-1200" in page.text
    alone = Page(rb.data.report(found.plain, draws=10))
    assert "The log rejects the model" in alone.text
    assert "With a season" not in alone.text


def test_hours_that_were_never_logged():
    trace = daily()
    there = (trace.times + 5) % 24 < 18
    columns = {name: getattr(trace, name)[there] for name in ("times", "arms", "states", "rewards")}
    found = rb.data.fit(dataclasses.replace(trace, **columns))
    text = rb.data.report(found, draws=10)
    bars = re.findall(r'<text class="tick [^>]*>(\d\d)</text>', text)
    assert bars[: len(bars) // 2] == [f"{hour:02d}" for hour in range(0, 24, 24 // (len(bars) // 2))]


def test_a_period_that_was_found_is_the_phase():
    states = moved(lambda t, _, last: (0.6 if last else 0.4) + 0.3 * np.cos(2 * np.pi * t / 17), seed=4)
    page = Page(rb.data.report(rb.data.fit(trace_of(states))))
    assert "twelfth of 17 slots" in page.text
    assert "There is one arm, and nothing to choose." in page.text


@pytest.mark.parametrize("season", [False, True])
def test_names_cannot_write_into_the_page(season):
    evil = "<script>alert('x')</script>\"&"
    trace = dataclasses.replace(daily(), names=(evil, "b" * 80), source=f"{evil}.csv", notes=(evil,))
    found = rb.data.fit_season(trace, "24h", phases=[8, 20]) if season else rb.data.fit(trace)
    text = rb.data.report(found, draws=10)
    page = Page(text)
    assert "script" not in page.tags
    assert evil in page.text
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)


def test_odd_logs():
    # A constant arm, one seen in few states, one without consecutive looks to speak of, and many arms.
    states = [0, 1, 0, 1, 1, 0, 0, 1] + [1, 2, 1, 1, 2, 2, 1, 2] + [2] * 8
    small = rb.data.trace(list(range(8)) * 3, ["a"] * 8 + ["b"] * 8 + ["c"] * 8, state=states)
    assert "None were made." in Page(rb.data.report(rb.data.fit(small, tests=False), draws=10)).text
    Page(rb.data.report(rb.data.fit(small), draws=10))
    many = rb.data.fit(trace_of(moved(plain, arms=15, slots=100), clock=HOURLY))
    assert "The first 12 of 15 arms." in Page(rb.data.report(many, draws=10)).text


def test_prospects():
    # Of two arms whose chains are known: what Whittle's policy gains lies in an interval of 50 draws that is short.
    truth = rb.Problem([rb.Arm.two_state(0.9, 0.9, name="a"), rb.Arm.two_state(0.8, 0.85, name="b")])
    found = rb.data.fit(logged(truth, paths(truth, 6000, seed=1), seed=2))
    gain = expected_gain(found, draws=50)
    assert gain.best_arm == "a"
    right = rb.oracles.exact(truth).gain - rb.oracles.evaluation.arm_average(truth.arms[0])
    low, high = interval(gain.above)
    # Five standard deviations of the draws: a false alarm below 1e-6.
    assert abs(gain.above.mean() - right) < 5 * gain.above.std()
    assert 0 < low < high < low + 0.1
    assert gain.bound >= gain.policy.mean() - 5 * gain.policy.std()
    with pytest.raises(rb.ProblemError, match="draws is 3"):
        expected_gain(found, draws=3)
    assert gain.as_dict()["above"]["mean"] == pytest.approx(gain.above.mean())
