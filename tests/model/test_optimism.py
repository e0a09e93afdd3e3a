"""m(T), rad(T) and gap(T)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from restless_bandits.paper.theory import exploration_count, gap, radius, radius_below_from


def test_exploration_count_is_the_ceiling_of_the_two_thirds_power():
    assert exploration_count(1000) == 100
    assert exploration_count(10**6) == 10_000
    assert exploration_count(1001) == 101
    assert exploration_count(1) == 1


def test_radius_by_hand():
    assert radius(10**6) == pytest.approx(math.sqrt(math.log(10**6) / 20_000))


@given(st.floats(0.01, 0.6))
def test_radius_stays_below_from_there_on(bound):
    start = radius_below_from(bound)
    assert start == 1 or radius(start - 1) > bound
    for horizon in [*range(start, start + 300), 2 * start, 10 * start]:
        assert radius(horizon) <= bound


def test_reference_values():
    """Instance 1 from about 4.1e4, instance 2 from about 4.5e5."""
    assert radius_below_from(0.2 / 3) == pytest.approx(4.1e4, rel=0.01)
    assert radius_below_from(0.1 / 3) == pytest.approx(4.5e5, rel=0.01)
    assert radius_below_from(0.0) is None


def test_gap_by_hand():
    rad = math.sqrt(math.log(10**6) / 20_000)
    expected = (2 * math.log(10**6) / math.log(2) + 8 / 0.5) * rad + 8e-6
    assert gap(10**6, 4, 0.5) == pytest.approx(expected)
    assert gap(10**6, 4, 1.0) == math.inf
    assert gap(10**6, 1, 0.0) == pytest.approx(2 * rad + 2e-6)
