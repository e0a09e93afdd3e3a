"""Tests that decide claims, on curves whose truth is known."""

import dataclasses

import numpy as np
import pytest

from restless_bandits.paper.experiments.curves import Curve, Panel
from restless_bandits.paper.experiments.limiting_policy import LimitingLoss
from restless_bandits.paper.experiments.verdicts import (
    BUSY,
    FAILS,
    FROM,
    HOLDS,
    NOT_RUN,
    NOT_YET,
    UNDECIDED,
    UNVIOLATED,
    Claim,
    ClaimFinding,
    Evidence,
    at_level,
    combine,
    decide,
    grows,
    less_spread,
    lower_along,
    steady_loss,
)
from restless_bandits.paper.experiments.writing import slots
from restless_bandits.simulation.comparator import Comparator

HORIZONS = np.array([1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000])


def outcome_of(finding):
    """The outcome of a finding that is the only part of a claim."""
    return at_level([finding])[0].outcome


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
        assert found.horizon == pytest.approx(10_000, rel=0.15)

    def test_equals_are_undecided(self):
        assert outcome_of(lower_along(curve("a", lambda t: t), curve("b", lambda t: t), "x")) == UNDECIDED

    def test_two_runs_decide_nothing(self):
        pair = curve("a", lambda t: t, runs=2), curve("b", lambda t: 9 * t, runs=2)
        assert outcome_of(lower_along(*pair, "x")) == UNDECIDED

    def test_few_runs_that_carry_the_mean_are_named(self):
        calm, wild = curve("a", lambda t: t), curve("b", lambda t: 1.01 * t)
        wild.regret[:2] *= 3
        found = lower_along(calm, wild, "x")
        assert outcome_of(found) == UNDECIDED
        assert "2 of 50 runs carry" in found.text
        assert "(median" in found.text
        assert found.numbers["b"]["median"] < found.numbers["b"]["mean"]

    def test_what_no_test_can_exclude_is_said(self):
        found = lower_along(curve("a", lambda t: t), curve("b", lambda t: 2 * t), "x")
        assert "a loss in fewer than 3 of 50 runs is not excluded" in found.text

    def test_only_common_horizons_count(self):
        short = curve("b", lambda t: t, horizons=HORIZONS[:4])
        assert lower_along(curve("a", lambda t: 100 * t**0.5), short, "x").numbers["horizon"] == 10_000


def test_false_alarms_of_a_whole_claim():
    """Eighteen parts without a difference: an alarm with chance 1e-3. More than 5 of 150 claims have chance 1e-8."""
    rng = np.random.default_rng(5)
    alarms = 0
    for _ in range(150):
        parts = []
        for _ in range(18):
            values = rng.standard_normal((2, 12, 1))
            a, b = (
                Curve(name, name, "gap", np.array([10]), one, one, "gap")
                for name, one in zip("ab", values, strict=True)
            )
            parts.append(lower_along(a, b, "x"))
        alarms += combine(claim("lower_regret"), "p", parts).outcome != UNDECIDED
    assert alarms <= 5


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

    def test_limit(self):
        for exponent, outcome in ((0.5, HOLDS), (0.9, FAILS)):
            found = grows(curve("a", lambda t, k=exponent: t**k), "x", limit=0.7)
            assert outcome_of(found) == outcome

    def test_no_exponent(self):
        assert curve("a", lambda t: -t).growth() is None
        assert curve("a", lambda t: t, horizons=HORIZONS[:3]).growth() is None
        assert outcome_of(grows(curve("a", lambda t: -t), "x", limit=0.9)) == UNDECIDED


class TestLinear:
    DECADES = np.array([10_000, 100_000, 1_000_000])

    @pytest.mark.parametrize(
        ("mean", "linear"),
        [
            (lambda t: 0.1 * t, True),
            (lambda t: 5000 + 0.002 * t, True),
            (lambda t: t / np.log(t), False),
            (lambda t: t**0.9, False),
            (lambda t: t**0.5, False),
        ],
    )
    def test_late_increments(self, mean, linear):
        line = curve("a", mean, noise=0.002, runs=40, horizons=self.DECADES)
        assert outcome_of(steady_loss(line, None, "x", linear=True)) == (HOLDS if linear else NOT_YET)
        assert outcome_of(steady_loss(line, None, "x", linear=False)) == (NOT_YET if linear else HOLDS)

    def test_not_yet_names_its_horizon(self):
        line = curve("a", lambda t: t**0.5, noise=0.01, horizons=self.DECADES)
        (verdict,) = decide(claim("linear", of=["a"], items=("one",)), evidence(line, items=("one",)))
        assert verdict.text == "not yet at T = 1e6"

    def test_the_limit_decides_where_it_is_known(self):
        """Whatever the exponent seems to be so far."""
        for mean in (lambda t: 5000 + 0.002 * t, lambda t: t**0.5):
            line = curve("a", mean)
            losing, optimal, open_ = LimitingLoss(2e-3, 2.1e-3), LimitingLoss(-1e-12, 1e-12), LimitingLoss(-1e-3, 1e-3)
            assert steady_loss(line, losing, "x", linear=True).outcome == HOLDS
            assert steady_loss(line, losing, "x", linear=False).outcome == FAILS
            assert steady_loss(line, optimal, "x", linear=True).outcome == FAILS
            assert steady_loss(line, optimal, "x", linear=False).outcome == HOLDS
            assert "limit" not in steady_loss(line, open_, "x", linear=True).numbers

    def test_horizons_of_one_decade(self):
        line = curve("a", lambda t: t, horizons=np.arange(5000, 50_001, 5000))
        assert line.late_rates()[1] == (5000, 15_000, 50_000)
        assert curve("a", lambda t: t, horizons=HORIZONS).late_rates()[1] == (1000, 10_000, 100_000)
        assert curve("a", lambda t: t, horizons=HORIZONS[:2]).late_rates() is None

    def test_a_line_that_falls_has_no_rate(self):
        assert outcome_of(steady_loss(curve("a", lambda t: -t), None, "x", linear=True)) == UNDECIDED


def test_spread():
    calm, wild = curve("a", lambda t: 100.0, noise=0.01), curve("b", lambda t: 100.0, noise=0.1)
    assert outcome_of(less_spread(calm, wild, 1.0, "x")) == HOLDS
    assert outcome_of(less_spread(calm, wild, 2.0, "x")) == HOLDS
    assert outcome_of(less_spread(calm, wild, 30.0, "x")) == FAILS
    assert outcome_of(less_spread(wild, calm, 1.0, "x")) == FAILS


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
            ([UNVIOLATED, UNVIOLATED], "no violation in 2 instances"),
            ([UNVIOLATED, FAILS], FAILS),
            ([HOLDS, BUSY], BUSY),
            ([], NOT_RUN),
        ],
    )
    def test_parts(self, outcomes, verdict):
        assert combine(claim("linear"), "p", [ClaimFinding("x", one, "") for one in outcomes]).text == verdict

    def test_from_the_last(self):
        parts = [
            ClaimFinding("x", HOLDS, ""),
            ClaimFinding("y", FROM, "", {}, 900.0),
            ClaimFinding("z", FROM, "", {}, 53_219.0),
        ]
        assert combine(claim("linear"), "p", parts).text == "holds from T ≈ 53 000"

    def test_the_level_is_that_of_the_whole(self):
        """Ten parts with p = 2e-4 are each below 1e-3, and chance brings one about in one of 500 claims."""
        part = ClaimFinding("x", HOLDS, "", p=2e-4)
        assert combine(claim("linear"), "p", [part]).outcome == HOLDS
        assert combine(claim("linear"), "p", [part] * 10).outcome == UNDECIDED
        assert combine(claim("linear"), "p", [part] * 5).outcome == HOLDS
        # What is computed and not estimated does not count.
        assert combine(claim("linear"), "p", [part, *[ClaimFinding("y", HOLDS, "")] * 10]).outcome == HOLDS

    def test_instances_are_counted(self):
        parts = [ClaimFinding("x", UNVIOLATED, "", tried=21), ClaimFinding("y", UNVIOLATED, "", tried=1)]
        assert combine(claim("theory"), "", parts).text == "no violation in 22 instances"

    def test_items_and_opponents(self):
        a, b, c = (curve(name, lambda t, k=k: k * t) for name, k in (("A", 1), ("B", 2), ("C", 0.5)))
        (verdict,) = decide(claim("lower_regret", of="A", than=["B", "C"]), evidence(a, b, c))
        assert [finding.outcome for finding in verdict.findings] == [HOLDS, FAILS] * 2
        assert verdict.text == FAILS
        (partly,) = decide(claim("lower_regret", of="A", than=["B"]), evidence(a, b, items=("two",)))
        assert partly.text == "holds (on what was run)"
        assert verdict.as_dict()["findings"][0]["A"]["runs"] == 50


def measured(seconds):
    """Ten times of about so many seconds."""
    return seconds * (1 + 0.01 * np.random.default_rng([int(1000 * seconds)]).standard_normal(10))


class TestTheRest:
    def test_exploration(self):
        line = dataclasses.replace(
            curve("R", lambda t: t), exploration=np.outer(1 + 0.01 * np.arange(30), HORIZONS ** (2 / 3))
        )
        asked = claim("exploration", of=["R"], factor=1.0, items=("one",))
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
        times = {
            "fast": {2: measured(1), 3: measured(1.05), 4: measured(1.1)},
            "slow": {2: measured(0.5), 3: measured(8), 4: measured(100)},
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

    @pytest.mark.parametrize("weather", [{"waited": 0.2, "jitter": 1.0}, {"waited": 0.0, "jitter": 1.6}])
    def test_a_busy_machine_refutes_nothing(self, weather):
        times = {"fast": {2: measured(1)}, "slow": {2: measured(0.5)}, "quick": {2: measured(0.01)}}
        build = {10: measured(1), 1000: measured(9000)}
        shown = Evidence({}, times=times, build_times=build, weather=weather)

        def verdict(test, **options):
            return decide(claim(test, protocols=(), items=(), **options), shown)[0]

        beaten = verdict("faster", of="fast", than=["slow"], arms=[2], factor=1.0)
        assert beaten.text == "undecided: this machine was busy"
        assert verdict("linear_build").outcome == BUSY
        assert verdict("faster", of="quick", than=["slow"], arms=[2], factor=1.0).outcome == HOLDS

    def test_build(self):
        asked = claim("linear_build", protocols=())
        for last, outcome in ((110, HOLDS), (9000, FAILS)):
            shown = Evidence({}, build_times={10: measured(1), 1000: measured(last)})
            assert decide(asked, shown)[0].outcome == outcome


@pytest.mark.parametrize(
    ("value", "text"), [(812, "810"), (53_219, "53 000"), (1e6, "1e6"), (2.34e7, "2.3e7"), (5, "5")]
)
def test_slots(value, text):
    assert slots(value) == text
