"""What a replayed learner earned in each slot, and how far back it remembers."""

import numpy as np
import pytest

import restless_bandits as rb
from tests.logs.logs import THREE, logged, paths


def test_rewards_by_slot_add_up():
    trace = logged(THREE, paths(THREE, 400, 3), 4, share=0.8)
    replayed = rb.data.replay(trace, ["ts:oracle=myopic,prior=continuous", "ucb1"], runs=2, horizon=60)
    for one in replayed.learners:
        assert one.rewards.shape == (one.runs, replayed.slots)
        assert one.rewards.sum(axis=1) == pytest.approx(one.totals)
    lost = rb.data.replay(trace, "round-robin", missing="lost").learners[0]
    assert lost.rewards.sum() == pytest.approx(lost.totals[0])
    assert (lost.rewards == 0).sum() >= lost.lost[0] > 0


def test_how_far_back_it_remembers():
    trace = logged(THREE, paths(THREE, 600, 3), 4)
    all_of_it, long, short = (rb.data.replay(trace, "ucb1", memory=memory).learners[0] for memory in (None, 10**6, 256))
    assert np.array_equal(all_of_it.rewards, long.rewards)
    assert np.array_equal(all_of_it.rewards[:, :256], short.rewards[:, :256])
    assert not np.array_equal(all_of_it.rewards, short.rewards)
