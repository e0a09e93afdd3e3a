"""What is read of files and of columns in memory, what is refused and in which words."""

import pytest

import restless_bandits as rb


def test_columns_in_any_order_and_gaps(write):
    trace = rb.data.read_trace(write("arm,state,time\nb,0,3\na,1,3\nb,1,5\na,0,9\n"))
    assert trace.names == ("b", "a")
    assert trace.times.tolist() == [3, 3, 5, 9]
    assert trace.arms.tolist() == [0, 1, 0, 1]
    assert trace.states.tolist() == [0, 1, 1, 0]
    assert trace.rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
    assert trace.reward_laws == ("fixed", "fixed")
    assert trace.source == "trace.csv"


@pytest.mark.parametrize(
    "text",
    [
        "time;arm;value;reward\n0;10;1.5;0.5\n1;10;2.5;0.25\n0;9;0.5;1\n",
        "\ufeffTime, Arm ,Value,Reward\r\n0,10,1.5,0.5\r\n\r\n1,10,2.5,0.25\r\n0,9,0.5,1\r\n",
        'time\tarm\tvalue\treward\n0.0\t"10"\t1.5\t0.5\n1e0\t 10 \t2.5\t0.25\n0\t9\t0.5\t1',
    ],
)
def test_semicolons_tabs_byte_order_marks_quotes(write, text):
    trace = rb.data.read_trace(write(text), edges=[1, 2])
    assert trace.names == ("9", "10")  # arms by number in the order of their numbers
    assert trace.times.tolist() == [0, 0, 1]
    assert trace.states.tolist() == [2, 1, 0]
    assert trace.rewards.tolist() == [1.0, 0.5, 0.25]
    assert trace.edges == (2.0, 1.0)


def test_more_lines_than_a_chunk(write, monkeypatch):
    monkeypatch.setattr("restless_bandits._internal.tables.CHUNK", 3)
    lines = [f"{t},{'ab'[t % 2]},{t % 3}" for t in range(10)]
    trace = rb.data.read_trace(write("\n".join(["time,arm,state", *lines])))
    assert trace.states.tolist() == [t % 3 for t in range(10)]
    assert trace.arms.tolist() == [t % 2 for t in range(10)]
    with pytest.raises(rb.ProblemError, match=r"trace.csv, line 9: state is 'x'"):
        rb.data.read_trace(write("\n".join(["time,arm,state", *lines[:7], "7,b,x", *lines[8:]])))


HEAD = "time,arm,state\n"
BAD_FILES = [
    ("", "trace.csv is empty; begin it with"),
    ("\n\n", "trace.csv is empty; begin it with"),
    (HEAD, "trace.csv holds no observations, only a header"),
    ("0,a,1\n", "trace.csv has no header; begin it with"),
    (
        "time,arm,stat\n0,a,1\n",
        "trace.csv has neither a state nor a value column among time, arm, stat; --columns value=NAME",
    ),
    ("time,arm,state,state\n", "trace.csv has two columns 'state'; keep one"),
    ("time,state\n0,1\n", "trace.csv has no column 'arm' among time, state; it needs"),
    ("time,arm\n0,a\n", "trace.csv has neither a state nor a value column among time, arm; --columns"),
    ("time,arm,state,value\n", "trace.csv has both a state and a value column; choose, as by --columns value=value"),
    (HEAD + "0,a,1\n1,a\n", "trace.csv, line 3 has 2 cells, the header has 3"),
    (HEAD + "0,a,1\n\n1,,1\n", "trace.csv, line 4: arm is missing; name it"),
    (HEAD + "0,a,\n", "trace.csv holds no observations: no line has a state; name another column"),
    (HEAD + ",a,1\n", "trace.csv, line 2: time is missing; leave the whole line out"),
    (HEAD + "0,a,good\n", "line 2: state is 'good', which is not a number; give a whole number, 0 for the best"),
    (HEAD + "0,a,1.5\n", "line 2: state is 1.5, which is not whole"),
    (HEAD + "nan,a,1\n", "line 2: time is nan; leave the line out"),
    (HEAD + "now,a,1\n", "line 2: time is 'now', which is neither a number nor a time in ISO 8601; give the slot"),
    (HEAD + "1e300,a,1\n", "line 2: time is 1e300, which is too large"),
    (HEAD + '0,"a,1\n', "trace.csv, line 2: unexpected end of data; check the quotation marks"),
    ("time;arm;value\n0;a;1,5\n", "line 2: value is '1,5', which is not a number; write decimals with a point"),
    ("time,arm,value\n0,a,inf\n", "line 2: value is inf; leave the line out"),
    ("time,arm,state\n0,é,1\n".encode("utf-16"), "trace.csv is in UTF-16; save it as CSV in UTF-8"),
    ("time,arm,state\n0,é,1\n".encode("latin-1"), "trace.csv, line 2: the byte 0xe9 is not UTF-8"),
]


@pytest.mark.parametrize(("text", "message"), BAD_FILES, ids=[message[:50] for _, message in BAD_FILES])
def test_bad_files(write, text, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.read_trace(write(text))
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bad_columns_in_memory(tmp_path):
    with pytest.raises(rb.ProblemError, match="columns have different lengths"):
        rb.data.trace([0, 1], ["a"], state=[0, 1])
    with pytest.raises(rb.ProblemError, match="holds no observations"):
        rb.data.trace([], [], state=[])
    with pytest.raises(rb.ProblemError, match=r"observation 1: value is inf; leave"):
        rb.data.trace([0, 1], ["a", "a"], value=[0.5, float("inf")])
    with pytest.raises(rb.ProblemError, match=r"observation 1: .* before, at observation 0"):
        rb.data.trace([3, 3], ["a", "a"], state=[0, 1])
    for missing in (None, float("nan"), " "):
        with pytest.raises(rb.ProblemError, match="observation 1: arm is missing; name it"):
            rb.data.trace([0, 1], ["a", missing], state=[0, 1])
    with pytest.raises(rb.ProblemError, match=r"cannot read .*: No such file"):
        rb.data.read_trace(tmp_path / "none.csv")


def test_columns_by_other_names(write):
    text = "Year,When,Origin,late,state,\n2013,0,JFK,3.5,9,\n2013,1,JFK,,9,\n2013,1,LGA,2.5,9,\n"
    trace = rb.data.read_trace(write(text), columns={"time": "when", "arm": "Origin", "value": "late"})
    assert trace.names == ("JFK", "LGA")
    assert trace.times.tolist() == [0, 1]
    assert trace.notes == (
        "ignored in trace.csv: columns Year, state, number 6, without a name",
        "left out: 1 line without a value, the first at trace.csv, line 3",
    )


def test_arms_in_columns(write):
    text = "when,10,9,site\n0,1.5,0.5,x\n1,,2.5,y\n2,NA,null,z\n"
    path = write(text)
    trace = rb.data.read_trace(path, columns={"time": "when", "value": ["9", "10"]}, edges=[1, 2])
    assert trace.names == ("9", "10")
    assert trace.times.tolist() == [0, 0, 1]
    assert trace.states.tolist() == [2, 1, 0]
    assert trace.notes == ("ignored in trace.csv: column site",)
    states = rb.data.read_trace(write("time,a,b,c\n0,1,0,\n1,,1,\n"), columns={"state": "*"})
    assert (states.names, states.states.tolist()) == (("a", "b"), [1, 0, 1])
    assert states.notes == ("left out: arms without any cell, c",)
    alone = rb.data.read_trace(write("time,a,b\n0,1,7\n1,2,8\n"), columns={"value": "a"}, wide=True)
    assert (alone.names, len(alone)) == (("a",), 2)


NAMED = [
    ({"time": "tiem"}, "trace.csv has no column 'tiem' for time; did you mean 'time'?"),
    ({"tine": "time"}, "a log has no column 'tine'; did you mean 'time'?"),
    ({"time": ["time", "a"]}, "column time is time, a; give one name for it"),
    ({"value": []}, "column value is []; give the name that the log has for it"),
    ({"value": "a", "state": "b"}, "columns are named for both state and value; name one of them"),
    ({"value": "*", "arm": "a"}, "a wide log has arms in columns and no column arm; leave out either of the two"),
    ({"value": ["a", "a"]}, "trace.csv has two columns 'a'; keep one"),
    ({"value": ["a", "time"]}, "trace.csv has no columns for arms beside 'time'"),
    ({"value": "*"}, "trace.csv, line 3, column 'b': value is 'x', which is not a number"),
    ({}, "trace.csv has no column 'arm' among time, a, b; it needs time, arm, and state or value, --columns arm=NAME"),
    ({"arm": "a"}, "neither a state nor a value column among time, a, b; --columns value=NAME says which it is, or"),
    (["time"], "columns is ['time']; give a mapping such as {'time': 'time_hour'}"),
]


@pytest.mark.parametrize(("columns", "message"), NAMED, ids=[message[:40] for _, message in NAMED])
def test_bad_names(write, columns, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.read_trace(write("time,a,b\n0,1,\n1,2,x\n"), columns=columns)
    assert message in str(refused.value)


BAD_FORMS = [
    ("log.jsonl", "\n", "log.jsonl is empty; give a JSON object a line"),
    (
        "log.jsonl",
        '{"time": 0}\n\n{"time": \n',
        "log.jsonl, line 3 is no JSON (Expecting value); give one object a line",
    ),
    ("log.jsonl", '{"time": 0}\n[1]\n', "log.jsonl, line 2 is '[1]', which is no JSON object; give one a line"),
    ("log.jsonl", "[" * 100_000, "log.jsonl, line 1 is no JSON"),
    ("log.jsonl", '{"time": 0, "arm": [1], "state": 0}', "log.jsonl, line 1: arm is [1], which is no name; give one"),
    ("log.jsonl", '{"time": 0, "arm": 1, "state": {}}', "log.jsonl, line 1: state is '{}', which is not a number"),
    ("log.jsonl", '{"time": 0, "arm": 1, "state": 1},{}', "log.jsonl, line 1 is no JSON (Extra data)"),
    ("log.csv.gz", b"\x1f\x8b\x08\x00broken", "cannot unpack log.csv.gz, which is cut or damaged; pack it again"),
    ("log.parquet", "time,arm", "log.parquet is no Parquet file, or is damaged; write it again"),
    ("log.csv", "PAR1", "log.csv is a Parquet file; give it a name that ends in .parquet"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD_FORMS, ids=[message[:40] for *_, message in BAD_FORMS])
def test_bad_forms(write, name, content, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.read_trace(write(content, name))
    assert message in str(refused.value)


def test_what_is_no_log():
    for source in (3, None, [1, 2]):
        with pytest.raises(rb.ProblemError, match="is no log; give the path of a file, a frame of pandas or polars"):
            rb.data.read_trace(source)
    with pytest.raises(rb.ProblemError, match="every cell is empty; name other columns"):
        rb.data.read_trace({"time": [0, 1], "a": [None, float("nan")]}, wide=True)
