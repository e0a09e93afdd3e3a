"""Edges by quantiles, by value and found; the number of states by cross-validated likelihood."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.logs import binning
from tests.logs.logs import THREE, paths


def levels(problem, slots, seed, centres, spread=0.3):
    """Times, arms and values of a log: a level for each state, and noise around it."""
    rng = np.random.default_rng(seed)
    states = paths(problem, slots, seed)
    values = np.array(centres)[states] + spread * rng.uniform(-1, 1, states.shape)
    times, arms = np.indices(states.shape)
    return times.ravel(), arms.ravel(), values.ravel(), states.ravel()


@pytest.mark.parametrize("low", [True, False])
def test_three_levels_are_found(low):
    # Levels at 0, 1 and 5: quantiles cut through the cluster in the middle, found edges lie between the clusters.
    times, arms, values, states = levels(THREE, 2500, 1, [0, 1, 5])
    values = values if low else -values
    read = rb.data.trace(times, arms, value=values, states="2..4", edges="found", low_is_better=low)
    assert read.n_states == 3
    first, second = (edge if low else -edge for edge in read.edges)
    assert 0.2 < first < 0.8
    assert 1.2 < second < 4.8
    assert np.array_equal(read.states, states)
    (note,) = read.notes
    assert note.startswith("3 of 2 to 4 states chosen, edges ")
    assert "(found): by cross-validated log-likelihood an observation" in note
    (told,) = rb.data.trace(times, arms, value=values, states=3, edges="found", low_is_better=low).notes
    assert "found: of all cuts into 3 states these are the most informative of the next state" in told


def test_noise_needs_two_states_only():
    # Independent values: more states predict nothing, and the smallest number is taken.
    rng = np.random.default_rng(2)
    values, times, arms = rng.random(3000), np.arange(3000), ["x"] * 3000
    read = rb.data.trace(times, arms, value=values, states="2..4")
    assert read.n_states == 2
    assert read.edges == rb.data.trace(times, arms, value=values, states=2, edges="quantile").edges


def test_score_by_hand():
    # One arm, four cells, one cut in the middle; half a look more for every move and every cell.
    train = np.zeros((1, 4, 4))
    train[0] = [[3, 0, 1, 0], [0, 2, 0, 0], [1, 0, 4, 0], [0, 0, 0, 5]]
    test = np.zeros((1, 4, 4))
    test[0, 0, 2] = 2
    moves = np.log((1 + 0.5) / (6 + 1))
    within = np.log((5 + 0.5) / (10 + 1))
    assert binning.score_of_cuts(train, test, (2,)) == pytest.approx(2 * (moves + within))
    assert binning.score_of_cuts(train, test, ()) == pytest.approx(2 * np.log((5 + 0.5) / (16 + 2)))


def test_best_cuts_against_all_cuts():
    rng = np.random.default_rng(3)
    times, arms, values, _ = levels(THREE, 3000, 4, [0, 1, 2], spread=0.9)
    cells = np.searchsorted(np.quantile(values, np.arange(1, 12) / 12), values)
    counts, _ = binning.transition_counts(binning.LoggedValues(cells.astype(float), times, arms), 12)
    total = counts.sum(axis=0)

    def told(cuts):
        moves = binning.merged_counts(total, cuts)
        with np.errstate(divide="ignore", invalid="ignore"):
            alone = moves.sum(axis=2, keepdims=True) * moves.sum(axis=1, keepdims=True)
            parts = moves * np.log(moves * moves.sum(axis=(1, 2), keepdims=True) / alone)
        return np.nansum(parts)

    pairs = [(a, b) for a in range(1, 11) for b in range(a + 1, 12)]
    best = max(pairs, key=told)
    for begin in [pairs[k] for k in rng.choice(len(pairs), 3, replace=False)]:
        assert told(binning.best_cuts(total, begin, 0.0)) == pytest.approx(told(best))


def test_states_that_an_arm_is_rarely_in_are_not_chosen(monkeypatch):
    counts = np.zeros((2, 3, 3))
    counts[0] = 5
    counts[1, 0, 0] = counts[1, 1, 0] = 5
    assert binning.every_state_left(counts, (1, 2))  # The second arm has no third state.
    counts[1, 2, 0] = 1
    assert not binning.every_state_left(counts, (1, 2))
    assert binning.every_state_left(counts, (1,))
    times, arms, values, _ = levels(THREE, 1500, 5, [0, 1, 5])
    monkeypatch.setattr(binning, "FEWEST_LOOKS", 10**6)
    read = rb.data.trace(times, arms, value=values, states="2..4", low_is_better=True)
    assert read.n_states == 2
    assert "it is the best; 3, 4 would leave an arm too rarely in a state" in read.notes[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"states": "5..2"}, "states is '5..2'; give numbers from 2 to 12, the smaller one first"),
        ({"states": "2..99"}, "states is '2..99'; give numbers from 2 to 12"),
        ({"states": "two"}, "states is 'two'; give a number, or two such as 2..5"),
        ({"states": "1"}, "states is 1; it must be a whole number"),
        ({"edges": "best"}, "edges is 'best'; give the values between states, or quantile, or found"),
        ({"edges": [1.0], "states": "2..3"}, "a number of states and edges are both given"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.trace(range(4), ["x"] * 4, value=[1.0, 2.0, 3.0, 4.0], **options)
    assert message in str(refused.value)


def test_nothing_to_choose_by():
    with pytest.raises(rb.ProblemError, match="no arm was seen twice, so states cannot be chosen"):
        rb.data.trace([0, 0, 0], ["a", "b", "c"], value=[1.0, 2.0, 3.0], states="2..3")
    few = rb.data.trace(range(60), ["x"] * 60, value=[1.0, 2.0, 3.0] * 20, states="2..5")
    assert few.n_states == 3
