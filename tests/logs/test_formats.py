"""One log in every form that it may come in: the same trace as a slow reader makes of its lines."""

import gzip
import io
import json
import sys
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import restless_bandits as rb
from restless_bandits._internal import cells, tables

START = datetime(2024, 3, 30, 22, 17)
EDGES = [2.0, 5.0]
HOURS = 3600


def slow_trace(lines, slot, duplicates):
    """States and rewards by slot and arm, from lines (time, arm, value, reward), looked at one by one."""
    there = [line for line in lines if line[2] is not None]
    first = min(time for time, *_ in there)
    if duplicates == "refuse":
        slots = [int((time - first) / timedelta(seconds=slot) + 0.5) for time, *_ in there]
    else:
        begin = first.replace(hour=0, minute=0, second=0, microsecond=0)
        steps = [(time - begin) // timedelta(seconds=slot) for time, *_ in there]
        slots = [step - min(steps) for step in steps]
    groups = {}
    for place, (at, line) in enumerate(zip(slots, there, strict=True)):
        groups.setdefault((at, line[1]), []).append((line[0], place, line[2], line[3]))
    if duplicates == "refuse":
        assert all(len(group) == 1 for group in groups.values())
    found = {}
    for key, group in groups.items():
        group.sort(key=lambda entry: entry[:2])
        if duplicates == "mean":
            value, reward = (sum(entry[k] for entry in group) / len(group) for k in (2, 3))
        else:
            value, reward = group[-1][2:]
        found[key] = sum(value < edge for edge in EDGES), reward
    return found


def by_slot_and_arm(trace):
    names = [trace.names[arm] for arm in trace.arms]
    found = dict(zip(zip(trace.times.tolist(), names, strict=True), trace.states.tolist(), strict=True))
    rewards = dict(zip(found, trace.rewards.tolist(), strict=True))
    return {key: (state, pytest.approx(rewards[key], abs=1e-12)) for key, state in found.items()}


@st.composite
def logs(draw, *, several=False):
    """Lines that hold all three states, at times a few hours apart; one an hour and arm, or several."""
    keys = st.tuples(st.integers(0, 40), st.sampled_from("abc"))
    looks = draw(st.lists(keys, min_size=4, max_size=25, unique=not several))
    lines = []
    for n, (hour, arm) in enumerate(looks):
        minutes = draw(st.integers(0, 59)) if several else draw(st.integers(-10, 10))
        value = [1.0, 3.0, 7.0][n] if n < 3 else draw(st.none() | st.integers(0, 80).map(lambda k: k / 8))
        lines.append((START + timedelta(hours=hour, minutes=minutes), arm, value, draw(st.integers(0, 4)) / 4))
    return lines


def frame_of(lines, zone):
    times = [time.replace(tzinfo=zone) for time, *_ in lines]
    return pd.DataFrame(
        {
            "when": times,
            "host": [arm for _, arm, _, _ in lines],
            "ms": [value for _, _, value, _ in lines],
            "paid": [reward for *_, reward in lines],
            "note": ["x"] * len(lines),
        }
    )


def written(frame, folder):
    """Every form of a log, by its name."""
    text = frame.assign(when=[time.isoformat() for time in frame["when"]])
    buffer = io.StringIO()
    text.to_csv(buffer, index=False)
    objects = json.loads(text.to_json(orient="records"))
    lines = "\n".join(map(json.dumps, objects)).encode()
    files = {
        "log.csv": buffer.getvalue().encode(),
        "log.csv.gz": gzip.compress(buffer.getvalue().encode()),
        "semicolons.csv": buffer.getvalue().replace(",", ";").replace("\n", "\r\n").encode(),
        "quoted.csv": buffer.getvalue().replace(",x", ',"x"').encode(),
        "log.jsonl": lines,
        "log.ndjson.gz": gzip.compress(lines),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
    frame.to_parquet(folder / "log.parquet")
    yield from (folder / name for name in [*files, "log.parquet"])
    yield frame
    yield pl.from_pandas(frame)
    yield pl.from_pandas(frame).to_arrow()
    yield {name: list(frame[name]) for name in frame}
    yield frame.set_index("when")
    yield Stream(pl.from_pandas(frame).to_arrow())


class Stream:
    """An object of which nothing is known but the Arrow stream interface."""

    def __init__(self, table):
        self.__arrow_c_stream__ = table.__arrow_c_stream__


NAMES = {"time": "when", "arm": "host", "value": "ms", "reward": "paid"}


@pytest.mark.parametrize("zone", [None, UTC, ZoneInfo("Asia/Kolkata")])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_every_form_is_the_same_trace(tmp_path_factory, zone, data):
    duplicates = data.draw(st.sampled_from(["refuse", "mean", "last"]))
    lines = data.draw(logs(several=duplicates != "refuse"))
    if duplicates == "refuse":
        # Full hours from the first on, each up to ten minutes off: of one arm never two in an hour.
        first = min(time for time, _, value, _ in lines if value is not None)
        lines = [(time if time >= first else first, *rest) for time, *rest in lines]
        seen = {(round((time - first) / timedelta(hours=1) + 1e-9), arm) for time, arm, *_ in lines}
        if len(seen) < len(lines):
            return
    expected = slow_trace(lines, HOURS, duplicates)
    if {state for state, _ in expected.values()} != {0, 1, 2}:
        return
    folder = tmp_path_factory.mktemp("forms")
    options = {"columns": NAMES, "slot": "1h", "duplicates": duplicates, "edges": EDGES}
    ignored = 0
    for source in written(frame_of(lines, zone), folder):
        trace = rb.data.read_trace(source, **options)
        assert by_slot_and_arm(trace) == expected
        assert (trace.clock.seconds, bool(trace.clock.zone)) == (HOURS, zone is not None)
        ignored += any("note" in note for note in trace.notes)
    assert ignored == 13
    order = data.draw(st.permutations(range(len(lines))))
    if duplicates != "last" or len({(time, arm) for time, arm, *_ in lines}) == len(lines):
        shuffled = rb.data.read_trace(frame_of([lines[i] for i in order], zone), **options)
        assert by_slot_and_arm(shuffled) == expected


@settings(max_examples=10, deadline=None)
@given(logs())
def test_wide_is_long(lines):
    frame = frame_of(lines, None).sort_values("when", kind="stable")
    wide = frame.pivot_table(index="when", columns="host", values="ms", aggfunc="first", dropna=False)
    wide = wide[list(dict.fromkeys(frame["host"]))]
    long = frame.dropna().drop_duplicates(["when", "host"])
    options = {"slot": "1h", "duplicates": "last", "edges": EDGES}
    expected = rb.data.read_trace(long, columns={key: NAMES[key] for key in ("time", "arm", "value")}, **options)
    for source in (
        wide,
        wide.reset_index(),
        pl.from_pandas(wide.reset_index()),
        {name: list(column) for name, column in wide.reset_index().items()},
    ):
        found = rb.data.read_trace(source, columns={"time": "when"}, wide=True, **options)
        assert set(found.names) == set(expected.names)
        mine, theirs = by_slot_and_arm(found), by_slot_and_arm(expected)
        assert mine == {key: (state, found.levels[state]) for key, (state, _) in theirs.items()}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.sampled_from(["a,b,c", "1,2,3", " x , y,z ", "a,b", "", '"q,r",b,c', "é,,", "a,b,c\r", "\t,;,|"]),
        min_size=1,
        max_size=12,
    ),
    st.booleans(),
)
def test_plain_files_are_split_as_a_reader_would(lines, ends):
    text = "\n".join(["one,two,three", *lines]) + "\n" * ends

    def rows():
        try:
            columns = tables.csv_table(text, "log.csv").columns([0, 1, 2])
        except rb.ProblemError as refused:
            return str(refused)
        return list(zip(*map(cells.listed, columns), strict=True))

    by_arrow = rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pyarrow", None)
        assert rows() == by_arrow


def test_frames_and_streams_without_pyarrow(monkeypatch):
    lines = [(START + timedelta(hours=n), "ab"[n % 2], float(n), n / 8) for n in range(8)]
    frame = frame_of(lines, ZoneInfo("Asia/Kolkata"))
    polars, options = pl.from_pandas(frame), {"columns": NAMES, "slot": "1h", "edges": EDGES}
    stream = Stream(polars.to_arrow())
    expected = rb.data.read_trace(polars, **options)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for source in (frame, polars, {name: polars[name] for name in polars.columns}):
        found = rb.data.read_trace(source, **options)
        assert found.content == expected.content
        assert found.clock == expected.clock
    with pytest.raises(rb.ProblemError, match=r"reading an Arrow stream needs pyarrow; pip install"):
        rb.data.read_trace(stream, **options)


def test_parquet_without_pyarrow(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(rb.ProblemError, match=r"log.parquet needs pyarrow; pip install '.*\[logs\]' brings it"):
        rb.data.read_trace(tmp_path / "log.parquet")


def test_arms_of_a_frame_with_missing_cells_keep_their_numbers():
    frame = pd.DataFrame({"time": [0, 1, 2, 3], "arm": [10.0, 9.0, 10.0, 9.0], "state": [0, None, 1, 0]})
    trace = rb.data.read_trace(frame)
    assert trace.names == ("9", "10")
    assert trace.states.tolist() == [0, 1, 0]
    assert trace.notes == ("left out: 1 line without a state, the first at observation 1",)
    later = rb.data.read_trace(frame[frame["time"] > 1])
    assert later.times.tolist() == [2, 3]


def test_numbers_keep_their_digits(write):
    start = 1_700_000_000_000_000_000
    content = "".join(f'{{"time": {start + k}, "arm": 1, "state": {k % 2}}}\n' for k in range(3))
    found = rb.data.read_trace(write(content, "log.jsonl"))
    assert np.array_equal(found.times, start + np.arange(3))
