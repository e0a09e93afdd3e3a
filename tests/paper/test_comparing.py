"""Paired tests for heavy tails: how often they are wrong, and how often they find what is there."""

import numpy as np
import pytest

from restless_bandits.paper.experiments.comparing import LEVEL, carriers, side_of_mean, side_of_spread

TRIES = 600
MOST = 9
"""At a level of 1e-3 false alarms may have twice that rate: of 600 tries more than 9 then have chance 5e-7."""


WORDS = {-1: "less", 0: "undecided", 1: "more"}


def compare(differences, level=LEVEL):
    return WORDS[side_of_mean(np.array(differences)).at(level)]


def compare_spread(a, b, level=LEVEL):
    return WORDS[side_of_spread(np.array(a), np.array(b)).at(level)]


def normal(rng, n):
    return rng.standard_normal(n)


def lognormal(rng, n):
    return rng.lognormal(size=n)


def locking(share, loss):
    def draw(rng, n):
        return rng.standard_normal(n) + loss * (rng.random(n) < share)

    return draw


LAWS = {
    "normal": normal,
    "lognormal": lognormal,
    **{f"{p:g} lose {x}": locking(p, x) for p, x in [(0.01, 50), (0.03, 10), (0.1, 100)]},
}


@pytest.mark.parametrize("runs", [6, 24, 100])
@pytest.mark.parametrize("distribution", LAWS)
class TestOneLaw:
    """Both samples come from one law."""

    def test_means(self, distribution, runs):
        rng = np.random.default_rng([runs, *distribution.encode()])
        draw = LAWS[distribution]
        found = [compare(draw(rng, runs) - draw(rng, runs)) for _ in range(TRIES)]
        assert sum(one != "undecided" for one in found) <= MOST

    def test_spreads(self, distribution, runs):
        rng = np.random.default_rng([runs, 1, *distribution.encode()])
        draw = LAWS[distribution]
        found = [compare_spread(draw(rng, runs), draw(rng, runs)) for _ in range(TRIES)]
        assert sum(one != "undecided" for one in found) <= MOST


@pytest.mark.parametrize(("share", "runs"), [(0.02, 400), (0.1, 80), (0.2, 40)])
@pytest.mark.parametrize("loss", [10, 50])
class TestRareLosses:
    """One sample alone has large losses, eight of them or more on average, and the means or spreads are equal."""

    def test_means(self, share, runs, loss):
        rng = np.random.default_rng([runs, loss])
        draw = locking(share, loss)
        found = [compare(draw(rng, runs) - share * loss) for _ in range(TRIES)]
        assert sum(one != "undecided" for one in found) <= MOST
        # Student's test alone says so far more often where losses are large.
        if loss == 50:
            drawn = np.array([draw(rng, runs) - share * loss for _ in range(TRIES)])
            student = np.sqrt(runs) * drawn.mean(axis=1) / drawn.std(axis=1, ddof=1)
            assert (np.abs(student) > 3.6).sum() > 1

    def test_spreads(self, share, runs, loss):
        rng = np.random.default_rng([runs, loss, 1])
        draw, sd = locking(share, loss), np.sqrt(1 + share * (1 - share) * loss**2)
        found = [compare_spread(draw(rng, runs), sd * normal(rng, runs)) for _ in range(TRIES)]
        assert sum(one != "undecided" for one in found) <= MOST


class TestPower:
    """Shares of findings of 1000 tries, whose standard error is at most 0.016."""

    @pytest.mark.parametrize(("errors", "level", "least"), [(4.5, 1e-3, 0.7), (3.3, 1e-2, 0.62)])
    def test_means(self, errors, level, least):
        rng = np.random.default_rng(1)
        found = [compare(normal(rng, 40) - errors / np.sqrt(40), level) for _ in range(1000)]
        assert found.count("less") >= least * 1000
        assert "more" not in found

    @pytest.mark.parametrize(
        ("ratio", "runs", "level", "least"), [(2, 40, 1e-2, 0.73), (4, 40, 1e-3, 0.8), (2, 100, 1e-3, 0.95)]
    )
    def test_spreads(self, ratio, runs, level, least):
        rng = np.random.default_rng(2)
        found = [compare_spread(ratio * normal(rng, runs), normal(rng, runs), level) for _ in range(1000)]
        assert found.count("more") >= least * 1000
        assert "less" not in found


def test_paired_noise_cancels():
    rng = np.random.default_rng(0)
    shared = 100 * normal(rng, 40)
    assert compare(shared - (shared + 1 + 0.1 * normal(rng, 40))) == "less"


def test_direction():
    rng = np.random.default_rng(0)
    assert compare(5 + normal(rng, 20)) == "more"
    assert compare(-5 + normal(rng, 20)) == "less"
    assert compare_spread(normal(rng, 200), 9 * normal(rng, 200)) == "less"


def test_equal_values_are_as_good_as_coins():
    assert side_of_mean(np.full(6, 2.0)) == (1, 2**-5)
    assert compare(np.full(6, 2.0)) == "undecided"
    assert compare(np.full(11, -0.1)) == "less"
    assert compare(np.zeros(50)) == "undecided"
    assert compare_spread(np.ones(50), np.ones(50)) == "undecided"


def test_scale_does_not_matter():
    values = 0.6 + normal(np.random.default_rng(3), 30)
    for scale in (1e-200, 1e150):
        assert side_of_mean(scale * values).p == pytest.approx(side_of_mean(values).p)


@pytest.mark.parametrize("values", [[], [1.0], [1.0, 2.0]])
def test_fewer_than_three_decide_nothing(values):
    assert compare(values) == "undecided"
    assert compare_spread(values, values) == "undecided"


def test_carriers():
    assert carriers(np.array([0.1] * 38 + [8.0, 10.0])) == "2 of 40 runs carry 83%"
    assert carriers(-np.array([0.1] * 38 + [8.0, 10.0])) == "2 of 40 runs carry 83%"
    assert carriers(np.array([0.0, 0.0, 0.0, 0.0, 0.0, 7.0])) == "1 of 6 runs carries 100%"
    assert carriers(np.ones(40)) == ""
    assert carriers(np.zeros(40)) == ""
