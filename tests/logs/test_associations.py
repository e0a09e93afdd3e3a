"""Likelihood ratios over strata: by hand, against SciPy, and how often they raise a false alarm on true chains."""

import numpy as np
import pytest
from scipy import stats

from restless_bandits.logs.associations import association, line_in_spectrum, pooled_table, tail_probabilities, trend

CHAINS = {
    "even": np.array([[0.7, 0.3], [0.4, 0.6]]),
    "rare": np.array([[0.97, 0.03], [0.2, 0.8]]),
    "three": np.array([[0.9, 0.08, 0.02], [0.1, 0.8, 0.1], [0.02, 0.18, 0.8]]),
}


def walks(chain, slots, runs, rng):
    """Many runs of a chain at once: (slot, run)."""
    bounds = chain.cumsum(axis=1)[:, :-1]
    states = np.empty((slots, runs), dtype=np.int64)
    now = np.zeros(runs, dtype=np.int64)
    for t in range(slots):
        now = (rng.random(runs)[:, None] > bounds[now]).sum(axis=1)
        states[t] = now
    return states


def test_by_hand():
    # Two strata of the same looks, so twice the ratio of one; Williams' factor of a 2 by 2 table, written out.
    table = np.array([[30, 20], [10, 40]])
    groups, outcomes = (np.repeat(places.ravel(), table.ravel()) for places in np.indices((2, 2)))
    ratio = stats.chi2_contingency(table, correction=False, lambda_="log-likelihood").statistic
    factor = 1 + (100 / 50 + 100 / 50 - 1) * (100 / 40 + 100 / 60 - 1) / 600
    strata = np.repeat([7, 3], 100)
    found = association(strata, np.tile(groups, 2), np.tile(outcomes, 2))
    assert found.statistic == pytest.approx(2 * ratio / factor)
    assert (found.looks, found.degrees) == (200, 2)
    assert found.p_value == pytest.approx(stats.chi2.sf(2 * ratio / factor, 2))
    assert found.effect == pytest.approx(np.sqrt((2 * ratio / factor - 2) / 200))
    contrast = found.contrast
    assert {contrast.most_share, contrast.least_share} in ({0.6, 0.2}, {0.8, 0.4})
    nothing = association(np.zeros(30, dtype=int), np.arange(30) % 2, np.zeros(30, dtype=int))
    assert np.isnan(nothing.p_value)
    assert nothing.effect == 0


def test_neighbours_are_pooled_until_enough_is_expected():
    table = np.array([[40.0, 4, 1], [38, 3, 0], [3, 0, 0], [41, 5, 2]])
    pooled = pooled_table(table)
    assert pooled.sum() == table.sum()
    expected = np.outer(pooled.sum(axis=1), pooled.sum(axis=0)) / pooled.sum()
    assert expected.min() >= 5
    assert min(pooled.shape) == 2
    assert min(pooled_table(np.array([[90.0, 1], [90, 2]])).shape) == 1


def test_trend_against_shuffled_outcomes():
    # Two skewed strata. 5 000 shuffles: five standard errors of a share of a few percent, false alarms below 1e-6.
    rng = np.random.default_rng(1)
    strata = np.repeat([0, 1], [60, 40])
    groups, outcomes = (rng.random((2, 100)) < 0.25).astype(int)
    outcomes = np.where(rng.random(100) < 0.3, groups, outcomes)
    p, correlation = trend(strata, groups, outcomes)

    def together(shuffled):
        centred = [np.concatenate([part[:60] - part[:60].mean(), part[60:] - part[60:].mean()]) for part in shuffled]
        return float((centred[0] * centred[1]).sum())

    seen = together((groups, outcomes))
    drawn = np.array(
        [together((groups, np.concatenate([rng.permutation(outcomes[:60]), rng.permutation(outcomes[60:])])))
         for _ in range(5_000)]
    )  # fmt: skip
    share = min((drawn >= seen).mean(), (drawn <= seen).mean())
    # Half of those that are as large by chance, as sums of few values tie.
    share -= 0.5 * np.isclose(drawn, seen).mean()
    assert p == pytest.approx(2 * share, abs=10 * np.sqrt(share / 5_000) + 0.01)
    assert correlation > 0.2


@pytest.mark.parametrize("skew", [0.8, -0.3, 1e-3, 0.0])
def test_tails_of_a_skewed_law(skew):
    distribution = stats.pearson3(skew) if skew else stats.norm()
    for deviation in (-3.0, -0.5, 0.0, 1.0, 6.0):
        expected = (distribution.sf(deviation), distribution.cdf(deviation))
        assert tail_probabilities(deviation, skew) == pytest.approx(expected, rel=1e-3, abs=1e-12)


@pytest.mark.parametrize("name", CHAINS)
def test_false_alarms_on_true_chains_with_gaps(name):
    # For each question the number of p-values below 5 % and 1 % of 400 logs, against a binomial law with half as many
    # again, and above a half, with a tenth less: 3 tests x 4 questions, each wrong with a chance below 1e-7.
    rng = np.random.default_rng(2)
    slots, runs = 500, 400
    states = walks(CHAINS[name], slots, runs, rng)
    found = {"memory": [], "drift": [], "hour": [], "together": []}
    for run in range(runs):
        times = np.flatnonzero(rng.random(slots) < (0.6 if run % 2 else 1.0))
        seen, other = states[times, run], states[times, run - 1]
        waits, steps = np.diff(times), len(times) - 1
        strata = seen[:-1] * 1000 + waits
        close = np.flatnonzero(waits[:-1] == 1) + 1
        found["memory"].append(association(strata[close], seen[close - 1], seen[close + 1]).p_value)
        found["drift"].append(association(strata, np.arange(steps) * 4 // steps, seen[1:]).p_value)
        found["hour"].append(association(strata, times[:-1] % 24 // 6, seen[1:]).p_value)
        found["together"].append(trend(strata * 5 + other[:-1], other[1:], seen[1:])[0])
    for question, values in found.items():
        made = np.array(values)[np.isfinite(values)]
        for level in (0.05, 0.01):
            assert (made < level).sum() <= stats.binom.isf(1e-7, len(made), 1.5 * level), (question, level)
        assert (made > 0.5).sum() >= stats.binom.ppf(1e-7, len(made), 0.4), question


def test_lines_of_white_noise_and_of_a_cycle():
    # Noise in two slots of three, 300 times: p-values below 5 % as above. Then a cycle of 17 slots that explains a
    # twentieth of the variance.
    rng = np.random.default_rng(3)
    values = []
    for _ in range(300):
        times = np.flatnonzero(rng.random(900) < 0.67)
        values.append(line_in_spectrum(times, rng.standard_normal(len(times)))[1])
    assert (np.array(values) < 0.05).sum() <= stats.binom.isf(1e-7, 300, 0.075)
    times = np.arange(4000)
    period, p = line_in_spectrum(times, rng.standard_normal(4000) + 0.32 * np.cos(2 * np.pi * times / 17))
    assert (period, p < 1e-9) == (pytest.approx(17, rel=0.005), True)
    assert np.isnan(line_in_spectrum(np.arange(50), rng.standard_normal(50))[1])
    assert np.isnan(line_in_spectrum(times, np.zeros(4000))[1])
