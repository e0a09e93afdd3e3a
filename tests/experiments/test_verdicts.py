"""Tests that decide claims, on curves whose truth is known."""

import dataclasses

import numpy as np
import pytest

from restless_bandits.experiments import verdicts
from restless_bandits.experiments.curves import Curve, Panel
from restless_bandits.experiments.verdicts import (
    FAILS,
    FROM,
    HOLDS,
    NOT_RUN,
    UNDECIDED,
    Claim,
    Evidence,
    Finding,
    combine,
    decide,
    grows,
    less_spread,
    lower_along,
)
from restless_bandits.experiments.writing import slots
from restless_bandits.simulation.comparator import Comparator

HORIZONS = np.array([1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000])


def curve(label, mean, *, runs=50, noise=0.05, seed=0, horizons=HORIZONS):
    """A curve with the given mean as a function of T, and noise in proportion that runs share along T."""
    rng = np.random.default_rng([seed, *label.encode()])
    centre = np.array([mean(t) for t in horizons.astype(float)])
    factors = 1 + noise * (0.7 * rng.standard_normal((runs, 1)) + 0.7 * rng.standard_normal((runs, len(horizons))))
    regret = centre * factors
    return Curve(label, label.lower(), "gap", horizons, regret, regret, "gap")


class TestLowerAlong:
    def test_below_throughout(self):
        found = lower_along(curve("a", lambda t: t**0.5), curve("b", lambda t: 2 * t**0.5), "x")
        assert found.outcome == HOLDS
        assert found.numbers["horizon"] == 100_000
        assert found.numbers["a"]["mean"] == pytest.approx(316, rel=0.05)

    def test_above_throughout_with_an_extrapolated_meeting(self):
        found = lower_along(curve("a", lambda t: 10 * t ** (2 / 3)), curve("b", lambda t: 0.02 * t), "x")
        assert found.outcome == FAILS
        # 10 T^(2/3) = 0.02 T at T = 500³.
        assert found.numbers["would_meet_at"] == pytest.approx(500**3, rel=0.5)
        assert "would meet at T ≈" in found.text

    def test_parallel_lines_never_meet(self):
        found = lower_along(curve("a", lambda t: 2 * t), curve("b", lambda t: t), "x")
        assert found.outcome == FAILS
        assert found.numbers["would_meet_at"] is None

    def test_crossing(self):
        # 30 √T = T at T = 900; 100 √T = T at T = 10 000.
        found = lower_along(curve("a", lambda t: 100 * t**0.5), curve("b", lambda t: t), "x")
        assert found.outcome == FROM
        assert found.from_horizon == pytest.approx(10_000, rel=0.15)

    def test_equals_are_undecided(self):
        assert lower_along(curve("a", lambda t: t), curve("b", lambda t: t), "x").outcome == UNDECIDED

    def test_two_runs_decide_nothing(self):
        pair = curve("a", lambda t: t, runs=2), curve("b", lambda t: 9 * t, runs=2)
        assert lower_along(*pair, "x").outcome == UNDECIDED

    def test_only_common_horizons_count(self):
        short = curve("b", lambda t: t, horizons=HORIZONS[:4])
        assert lower_along(curve("a", lambda t: 100 * t**0.5), short, "x").numbers["horizon"] == 10_000


class TestFalseAlarms:
    """Between equals a finding comes out with chance 1e-3: more than 15 of 3000 has chance 1e-7."""

    @pytest.mark.parametrize("runs", [4, 12, 100])
    def test_means(self, runs):
        rng = np.random.default_rng(1)
        alarms = sum(verdicts.sign(rng.standard_normal(runs)) != 0 for _ in range(3000))
        assert alarms <= 15

    @pytest.mark.parametrize("runs", [20, 200])
    def test_spreads(self, runs):
        alarms = 0
        for seed in range(3000):
            rng = np.random.default_rng([2, seed])
            a, b = (
                Curve(name, name, "gap", np.array([10]), values, values, "gap")
                for name, values in (("a", rng.standard_normal((runs, 1))), ("b", rng.standard_normal((runs, 1))))
            )
            alarms += less_spread(a, b, 1.0, "x").outcome != UNDECIDED
        assert alarms <= 15

    def test_growth(self):
        alarms = 0
        for seed in range(1000):
            line = curve("a", lambda t: t**0.9, runs=20, seed=seed)
            alarms += grows(line, "x", limit=0.9, above=True).outcome != UNDECIDED
        assert alarms <= 9


class TestGrowth:
    @pytest.mark.parametrize("exponent", [0.5, 2 / 3, 1.0])
    def test_exponent(self, exponent):
        found, error = curve("a", lambda t: 3 * t**exponent).growth()
        assert abs(found - exponent) < 5 * error < 0.05

    def test_against_a_bootstrap(self):
        line = curve("a", lambda t: t**0.7, noise=0.2)
        rng = np.random.default_rng(0)
        drawn = []
        for _ in range(2000):
            again = line.regret[rng.integers(line.runs, size=line.runs)].mean(axis=0)
            drawn.append(np.log10(again[-1] / again[3]))
        assert line.growth()[1] == pytest.approx(np.std(drawn), rel=0.15)

    def test_linear_and_sublinear(self):
        straight, bent = curve("a", lambda t: 0.1 * t), curve("b", lambda t: t**0.6)
        assert grows(straight, "x", limit=0.9, above=True).outcome == HOLDS
        assert grows(straight, "x", limit=0.9, above=False).outcome == FAILS
        assert grows(bent, "x", limit=0.9, above=True).outcome == FAILS

    def test_no_exponent(self):
        assert curve("a", lambda t: -t).growth() is None
        assert curve("a", lambda t: t, horizons=HORIZONS[:3]).growth() is None
        assert grows(curve("a", lambda t: -t), "x", limit=0.9, above=True).outcome == UNDECIDED


def test_spread():
    calm, wild = curve("a", lambda t: 100.0, noise=0.01), curve("b", lambda t: 100.0, noise=0.1)
    assert less_spread(calm, wild, 1.0, "x").outcome == HOLDS
    assert less_spread(calm, wild, 2.0, "x").outcome == HOLDS
    assert less_spread(calm, wild, 30.0, "x").outcome == FAILS
    assert less_spread(wild, calm, 1.0, "x").outcome == FAILS


def claim(test, **options):
    items = tuple(options.pop("items", ("one", "two")))
    return Claim("id", "place", "text", test, options, items, tuple(options.pop("protocols", ("p",))))


def evidence(*curves, items=("one", "two"), **more):
    known = Comparator("exact", 1.0, 1.0, 1.0)
    return Evidence({(item, "p"): Panel(item, "p", "problem", known, tuple(curves)) for item in items}, **more)


class TestCombining:
    @pytest.mark.parametrize(
        ("outcomes", "verdict"),
        [
            ([HOLDS, HOLDS], HOLDS),
            ([HOLDS, UNDECIDED], UNDECIDED),
            ([HOLDS, FAILS, UNDECIDED], FAILS),
            ([NOT_RUN, NOT_RUN], NOT_RUN),
            ([HOLDS, NOT_RUN], f"{HOLDS} (on what was run)"),
            ([FAILS, NOT_RUN], f"{FAILS} (on what was run)"),
            ([], NOT_RUN),
        ],
    )
    def test_parts(self, outcomes, verdict):
        assert combine(claim("linear"), "p", [Finding("x", one, "") for one in outcomes]).text == verdict

    def test_from_the_last(self):
        parts = [Finding("x", HOLDS, ""), Finding("y", FROM, "", {}, 900.0), Finding("z", FROM, "", {}, 53_219.0)]
        assert combine(claim("linear"), "p", parts).text == "holds from T ≈ 53 000"

    def test_items_and_opponents(self):
        a, b, c = (curve(name, lambda t, k=k: k * t) for name, k in (("A", 1), ("B", 2), ("C", 0.5)))
        (verdict,) = decide(claim("lower_regret", of="A", than=["B", "C"]), evidence(a, b, c))
        assert [finding.outcome for finding in verdict.findings] == [HOLDS, FAILS] * 2
        assert verdict.text == FAILS
        (partly,) = decide(claim("lower_regret", of="A", than=["B"]), evidence(a, b, items=("two",)))
        assert partly.text == "holds (on what was run)"
        assert verdict.as_dict()["findings"][0]["A"]["runs"] == 50


class TestTheRest:
    def test_exploration(self):
        line = dataclasses.replace(
            curve("R", lambda t: t), exploration=np.outer(1 + 0.01 * np.arange(30), HORIZONS ** (2 / 3))
        )
        asked = claim("exploration", of="R", factor=1.0, items=("one",))
        for factor, outcome in ((2.0, HOLDS), (0.5, FAILS)):
            bounds = {"one": lambda t, factor=factor: factor * t ** (2 / 3)}
            (verdict,) = decide(asked, evidence(line, items=("one",), exploration_bounds=bounds))
            assert verdict.outcome == outcome
            assert verdict.findings[0].numbers["exponent"] == pytest.approx(2 / 3)

    def test_posterior(self):
        asked = claim("posterior", of="TS-9", items=("inside",), protocols=())
        for weight, outcome in ((0.9, HOLDS), (0.1, FAILS), (0.5, UNDECIDED)):
            weights = weight + np.array([-0.05, 0.05] * 10)
            assert decide(asked, evidence(posteriors={"p": weights}))[0].outcome == outcome
        assert decide(asked, evidence())[0].outcome == NOT_RUN

    def test_times(self):
        noise = 1 + 0.01 * np.arange(10)
        times = {
            "fast": {2: noise, 3: 1.05 * noise, 4: 1.1 * noise},
            "slow": {2: 0.5 * noise, 3: 8 * noise, 4: 100 * noise},
        }
        shown = Evidence({}, times=times)

        def outcome(test, **options):
            return decide(claim(test, protocols=(), items=(), **options), shown)[0].outcome

        assert outcome("faster", of="fast", than=["slow"], arms=[3, 4], factor=5.0) == HOLDS
        assert outcome("faster", of="fast", than=["slow"], arms=[2, 3], factor=1.0) == FAILS
        assert outcome("faster", of="fast", than=["slow"], arms=[5], factor=1.0) == NOT_RUN
        assert outcome("flat_time", of="fast", factor=1.5) == HOLDS
        assert outcome("flat_time", of="slow", factor=1.5) == FAILS
        assert outcome("steep_time", of="slow", factor=3.0) == HOLDS
        assert outcome("steep_time", of="fast", factor=3.0) == FAILS
        one = Evidence({}, times={"fast": {2: np.ones(1), 4: np.full(1, 1.4)}})
        assert decide(claim("flat_time", protocols=(), of="fast", factor=1.5), one)[0].outcome == UNDECIDED

    def test_build(self):
        asked = claim("linear_build", protocols=())
        assert decide(asked, Evidence({}, build_times={10: 1.0, 1000: 110.0}))[0].outcome == HOLDS
        assert decide(asked, Evidence({}, build_times={10: 1.0, 1000: 9000.0}))[0].outcome == FAILS


@pytest.mark.parametrize(
    ("value", "text"), [(812, "810"), (53_219, "53 000"), (1e6, "1e6"), (2.34e7, "2.3e7"), (5, "5")]
)
def test_slots(value, text):
    assert slots(value) == text
