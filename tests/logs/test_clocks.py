"""Times of a clock, lengths of slots, and several lines in one: by hand."""

import datetime as dt
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits._internal import cells
from restless_bandits.logs.clocks import Clock


def read(times, slot=None, duplicates="refuse", arms=None):
    values = np.arange(len(times)) % 2
    return rb.data.read_trace(
        {"time": times, "arm": arms or ["a"] * len(times), "value": values}, slot=slot, duplicates=duplicates
    )


def stamped(*times, day="2024-05-01", zone=""):
    return [f"{day}T{time}{zone}" for time in times]


def test_a_clock_tells_when_slots_began():
    trace = read(stamped("06:00", "07:00", "09:00", zone="Z"), "1h")
    assert trace.times.tolist() == [0, 1, 3]
    assert trace.clock == Clock(3600.0, np.datetime64("2024-05-01T06:00", "us"), "UTC")
    assert trace.clock.at([0, 30]).astype("datetime64[m]").astype(str).tolist() == [
        "2024-05-01T06:00", "2024-05-02T12:00"
    ]  # fmt: skip
    assert trace.clock.show(30) == "2024-05-02 12:00 UTC"
    local = read(stamped("06:00", "07:00", zone="-03:30"), "30min")
    assert (local.clock.zone, local.clock.show(0)) == ("-03:30", "2024-05-01 06:00 -03:30")
    assert read([0, 1, 2]).clock is None
    with pytest.raises(rb.ProblemError, match="the start of the first slot is unknown"):
        read([0, 60, 120], "1min").clock.at(0)
    since_1970 = read([1714543200, 1714546800], "1h").clock
    assert since_1970.show(1) == "2024-05-01 07:00 UTC"


@pytest.mark.parametrize(
    ("slot", "seconds"),
    [("90s", 90), ("1.5m", 90), ("1.5min", 90), ("2 h", 7200), ("1d", 86400), ("1w", 604800), (90, 90)],
)
def test_lengths(slot, seconds):
    assert read(["2024-05-01", "2024-05-09"], slot).clock.seconds == seconds


@pytest.mark.parametrize(
    ("slot", "message"),
    [
        ("1 month", "slot is '1 month'; give a number and a unit"),
        ("h", "slot is 'h'; give a number and a unit"),
        ("0h", "slot is 0.0; it must be a positive number"),
        (-1, "slot is -1; it must be a positive number"),
        ("0.0000001s", "too short or too long for times of a clock"),
    ],
)
def test_no_lengths(slot, message):
    with pytest.raises(rb.ProblemError) as refused:
        read(stamped("06:00", "07:00"), slot)
    assert message in str(refused.value)


def test_looks_are_rounded_and_bins_begin_with_the_hour():
    beat = stamped("05:30:00.4", "06:29:59.9", "07:30:00.2", "09:30:01")
    assert read(beat, "1h").times.tolist() == [0, 1, 2, 4]
    assert read(beat, "1h", "last").clock.show(0) == "2024-05-01 05:00"
    halves = stamped("05:59", "06:00", "06:59", "07:00")
    found = read(halves, "1h", "mean")
    assert found.times.tolist() == [0, 1, 2]
    assert found.states.tolist() == [1, 0, 0]  # 0, the mean of 1 and 0, and 1, of which half is on the better side
    offset = read(stamped("05:59", "06:00", "06:29", "06:30", zone="+05:30"), "1h", "last")
    assert offset.times.tolist() == [0, 1]
    weeks = read(["2024-05-05", "2024-05-06", "2024-05-12", "2024-05-13"], "1w", "last")
    assert (weeks.times.tolist(), weeks.clock.show(0)) == ([0, 1, 2], "2024-04-29 00:00")
    sevenths = read(stamped("00:10", "06:50", "07:10"), "7h", "last")
    assert (sevenths.times.tolist(), sevenths.clock.show(0)) == ([0, 1], "2024-05-01 00:00")


def test_the_last_line_is_that_of_the_latest_time():
    frame = {"time": stamped("05:50", "05:10", "06:00"), "arm": list("aaa"), "state": [0, 1, 1]}
    assert rb.data.read_trace(frame, slot="1h", duplicates="last").states.tolist() == [0, 1]
    same = {"time": [0, 0, 1], "arm": list("aaa"), "state": [1, 0, 1]}
    assert rb.data.read_trace(same, duplicates="last").states.tolist() == [0, 1]


def test_several_lines_need_a_word():
    times = stamped("05:50", "05:10", "06:00")
    with pytest.raises(rb.ProblemError) as refused:
        read(times, "1h")
    assert str(refused.value) == (
        "observation 2: arm 'a' was logged in slot 1 before, at observation 0; keep one of the two, make slots shorter "
        "(--slot), log UTC if clocks were set back, or say what to do with several: --duplicates mean or last"
    )
    for column, values, why in (
        ("state", [0, 1, 0], "states have no mean; say --duplicates last"),
        ("probability", [1.0, 0.5, 0.5], "with probabilities a slot holds one choice"),
    ):
        frame = {"time": times, "arm": list("aaa"), column: values}
        frame |= {} if column == "state" else {"value": [0, 1, 2]}
        with pytest.raises(rb.ProblemError, match=why):
            rb.data.read_trace(frame, slot="1h", duplicates="mean")


def test_rewards_are_averaged_too():
    frame = {"time": [0, 0, 1], "arm": list("aaa"), "value": [1, 2, 9], "reward": [0.5, 1.0, 0.25]}
    found = rb.data.read_trace(frame, duplicates="mean")
    assert found.rewards.tolist() == [0.75, 0.25]


@pytest.mark.parametrize(
    ("times", "length"),
    [
        (stamped("05:00", "06:00", "07:00", "12:00"), "1h"),
        (stamped("05:00:00.3", "05:01:01", "05:01:59.8", "05:03:01", "05:04:00"), "1min"),
        (stamped("05:00", "05:55", "06:50", "07:45"), "55min"),
        (["2024-05-01", "2024-05-02", "2024-05-07"], "1d"),
        ([0.25, 0.75, 1.25, 9.75], "0.5"),
    ],
)
def test_a_guess_is_said_aloud(times, length):
    found = read(times)
    assert found.notes == (
        f"guessed slot length: {length} (the usual gap between lines of one arm); override with --slot",
    )
    assert found.times.tolist() == read(times, length).times.tolist()


def test_numbers_that_have_something_in_common_get_a_hint():
    assert read(list(range(0, 1200, 60))).notes == (
        "times number the slots, and all of them are multiples of 60 apart; --slot 60 if a slot is that long",
    )
    assert read(list(range(0, 1200, 60)), 60).notes == ()
    assert read(list(range(0, 1200, 60)), "1min").notes == (
        "times are numbers, and taken for seconds, as the slot has a unit",
    )


def test_summer_time():
    hours = pd.date_range("2024-10-26 22:00", periods=6, freq="h", tz="UTC").tz_convert("Europe/Berlin")
    found = read(hours, "1h")
    assert found.times.tolist() == list(range(6))
    shown = [str(time)[11:16] for time in found.clock.at(np.arange(6))]
    assert shown == ["00:00", "01:00", "02:00", "02:00", "03:00", "04:00"]
    written = [time.isoformat() for time in hours]
    mixed = read(written, "1h")
    assert mixed.times.tolist() == list(range(6))
    assert mixed.notes == ("times have several offsets (+01:00, +02:00); slots and phases are counted in UTC",)
    assert mixed.clock.zone == "UTC"
    without = [time.tz_localize(None).isoformat() for time in hours]
    with pytest.raises(rb.ProblemError, match="log UTC if clocks were set back"):
        read(without, "1h")
    days = pd.date_range("2024-10-25", periods=6, freq="D", tz="Europe/Berlin")
    for duplicates in ("refuse", "last"):
        assert read(days, "1d", duplicates).times.tolist() == list(range(6))


@pytest.mark.parametrize(
    ("times", "message"),
    [
        (
            ["2024-05-01T05:00Z", "2024-05-01T06:00"],
            "observation 1: time '2024-05-01T06:00' has no zone, but those before",
        ),
        (
            ["2024-05-01T05:00", "2024-05-01T06:00Z"],
            "observation 1: time '2024-05-01T06:00Z' has a zone, but those before",
        ),
        (["2024-05-01", "7"], "observation 1: time is '7', which is no time in ISO 8601 as the first one is"),
        (["7", "2024-05-01"], "observation 1: time is '2024-05-01', a time of a clock, but the first one is a number"),
        (["2024-05-01", "2024-02-30"], "observation 1: time is '2024-02-30', which is no time in ISO 8601"),
        (["2024-05-01", ""], "observation 1: time is missing; leave the whole line out"),
        (["2024-05-01", None], "observation 1: time is missing"),
        (["2024-05-01T05:00:00", "2024-05-01T05:00:61"], "observation 1: time is '2024-05-01T05:00:61'"),
        (["05/01/2024", "05/02/2024"], "which is neither a number nor a time in ISO 8601; give the slot as a whole"),
        (["2024-05-01", "2024-05-01"], "no arm has lines at two times, so the length of a slot is unknown"),
        (np.array(["2024-05-01", "NaT"], dtype="datetime64[s]"), "observation 1: time is missing"),
    ],
)
def test_bad_times(times, message):
    with pytest.raises(rb.ProblemError) as refused:
        read(times)
    assert message in str(refused.value)


@pytest.mark.parametrize("without", [False, True])
def test_kinds_of_times_do_not_change_in_a_file(write, monkeypatch, without):
    if without:
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    for first, then, message in (
        (
            "2024-05-01T05:00:00",
            "7",
            "line 4: time is '7', which is no time in ISO 8601 as the first one is; give all times alike",
        ),
        (
            "7",
            "2024-05-01T05:00:00",
            "line 4: time is '2024-05-01T05:00:00', a time of a clock, but the first one is a number",
        ),
        (
            "2024-05-01T05:00:00Z",
            "2024-05-01T06:00:00",
            "line 4: time '2024-05-01T06:00:00' has no zone, but those before it have one",
        ),
    ):
        text = f"time,arm,state\n{first},{'a' * 30},0\n{first},{'b' * 30},1\n{then},c,1\n"
        with pytest.raises(rb.ProblemError, match=message):
            rb.data.read_trace(write(text))


@settings(max_examples=60, deadline=None)
@given(
    # A day later than the first moment of Python: with a zone that one lies in the year 0.
    st.lists(st.datetimes(min_value=dt.datetime(1, 1, 2)), min_size=1, max_size=4),
    st.sampled_from(["minutes", "seconds", "milliseconds", "microseconds"]),
    st.lists(st.sampled_from(["+05:30", "-02:00", "+00:00"]), min_size=4, max_size=4) | st.none(),
)
def test_times_written_alike_are_read_at_once(moments, precision, ends):
    written = [time.isoformat(timespec=precision) for time in moments]
    if ends is not None:
        written = [time + end for time, end in zip(written, ends, strict=False)]
    at_once, one_by_one = cells.uniform_stamps(written), cells.parsed_stamps(written)
    assert at_once.times.tolist() == one_by_one.times.tolist()
    assert at_once.zones == one_by_one.zones
    for other in ("2024-02-30", "2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "0000-01-01", "2O24-01-01"):
        assert cells.uniform_stamps([other + "T00:00:00"]) is None
    for other in ("24:00:00", "00:60:00", "00:00:60"):
        assert cells.uniform_stamps(["2024-01-01T" + other]) is None
