"""The chances with which a logging policy chose: read, kept beside their lines, refused where they cannot be."""

import numpy as np
import pytest

import restless_bandits as rb

HEAD = "time,arm,state,probability\n"


def test_they_stay_with_their_lines():
    found = rb.data.trace([1, 0, 2], ["b", "a", "a"], state=[0, 1, 0], probability=[0.5, 0.25, 1.0])
    assert found.times.tolist() == [0, 1, 2]
    assert found.probabilities.tolist() == [0.25, 0.5, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        found.probabilities[0] = 0.1


def test_a_log_without_them_has_none(write):
    assert rb.data.read_trace(write("time,arm,state\n0,a,0\n1,a,1\n")).probabilities is None
    assert np.array_equal(rb.data.read_trace(write(HEAD + "0,a,0,1\n1,a,1,0.5\n")).probabilities, [1.0, 0.5])


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("0", "line 3: probability is 0, which cannot be, as the arm was chosen"),
        ("-0.1", "line 3: probability is -0.1, which cannot be"),
        ("1.5", "line 3: probability is 1.5, which is no probability"),
        ("", "line 3: probability is missing"),
        ("nan", "line 3: probability is nan"),
        ("half", "line 3: probability is 'half', which is not a number; give the probability"),
        ('"0,5"', "line 3: probability is '0,5', which is not a number; write decimals with a point"),
    ],
)
def test_what_is_no_chance(write, cell, message):
    with pytest.raises(rb.ProblemError, match=message):
        rb.data.read_trace(write(HEAD + f"0,a,0,0.5\n1,b,1,{cell}\n"))
