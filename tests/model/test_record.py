"""The record: what it keeps of a plan's notes."""

import json
from types import MappingProxyType

import numpy as np
import pytest

from restless_bandits import ProblemError
from restless_bandits.model.record import Record, frozen_note


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"modes": [[0.1, -3e-300], [], [2.0]], "searched": [1, 2], "phase": "approach"},
        {"draws": [(0.5, 1), [True, None, 0.25]], "inner": {"counted": (1, 2)}},
        {1: [[0.5]], "modes": [[0.5]]},
        {"frozen": MappingProxyType({"rows": ((1.5,), (2.5,))})},
        {"numbers": [[np.float64(0.1)]]},
    ],
)
def test_notes_are_kept_as_json_would_keep_them(notes):
    record = Record([2, 2], [None, None])
    record.remember(notes)
    assert repr(record.notes) == repr(json.loads(json.dumps(notes, default=dict)))


def test_notes_belong_to_the_record_and_a_learner_cannot_change_them():
    rows = [[0.5, 1.5], [2.5]]
    record = Record([2, 2], [None, None])
    record.remember({"modes": rows})
    rows[0][0] = 9.0
    assert record.notes == {"modes": [[0.5, 1.5], [2.5]]}
    assert frozen_note(record.notes)["modes"] == ((0.5, 1.5), (2.5,))


@pytest.mark.parametrize("note", [{1, 2}, np.zeros(2), [[0.5], [object()]]])
def test_notes_that_json_cannot_hold_are_refused(note):
    with pytest.raises(ProblemError, match="cannot be stored as JSON"):
        Record([2], [None]).remember({"bad": note})
