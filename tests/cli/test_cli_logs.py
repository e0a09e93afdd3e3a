"""How ``fit`` and ``replay`` read logs on the command line, and what they say aloud."""

import json

import numpy as np
import pytest

from tests.logs.logs import THREE, paths


@pytest.fixture
def flights(write):
    """Half-hourly lines of two airports, one of which is closed at night; the other lacks a value at six."""
    states = paths(THREE, 240, seed=21)
    lines = ["hour,when,where,late"]
    for t in range(240):
        stamp = f"2024-05-{1 + t // 48:02d}T{t % 48 // 2:02d}:{30 * (t % 2):02d}:00Z"
        lines.append(f"{t % 48 // 2},{stamp},EWR,{'' if t % 48 == 12 else 2 * states[t, 0]}")
        if t % 48 >= 10:
            lines.append(f"{t % 48 // 2},{stamp},JFK,{2 * states[t, 1]}")
    return write("\n".join(lines), "flights.csv")


NAMES = ["--columns", "time=when,arm=where,value=late", "--low-is-better", "--duplicates", "mean"]


def test_what_is_said_aloud(restless, flights):
    code, text, err = restless("replay", flights, *NAMES, "--learner", "round-robin", "--json")
    assert code == 0
    assert err.splitlines() == [
        "ignored in flights.csv: column hour",
        "left out: 5 lines without a value, the first at flights.csv, line 16",
        "guessed slot length: 30min (the usual gap between lines of one arm); override with --slot",
    ]
    found = json.loads(text)
    assert (found["slots"], found["used"], found["incomplete"], found["without_choice"]) == (240, 1.0, 55, 55)
    assert [arm["there"] for arm in found["arms"]] == [235, 190]


def test_hours(restless, flights):
    words = ["replay", flights, *NAMES, "--slot", "1h", "--learner", "round-robin"]
    code, text, _ = restless(*words)
    assert code == 0
    lines = text.splitlines()
    assert lines[:3] == [
        "flights.csv: 120 slots with some of 2 arms, 0 to 119",
        "from 2024-05-01 00:00 UTC to 2024-05-05 23:00 UTC",
        "used: 100.0% of the log; 25 slots lack an arm, 25 of them leave no choice",
    ]
    assert lines[-1] in ("* the first that is there of EWR, JFK", "* the first that is there of JFK, EWR")
    assert max(map(len, lines)) <= 80
    code, text, _ = restless(*words, "--missing", "lost")
    assert any(line.startswith("answers lost: round-robin ") for line in text.splitlines())
    assert "leave no choice" not in text
    code, text, err = restless(*words, "--missing", "stretch")
    assert code == 0
    assert "Warning: only 19 of 120 slots with anything logged were played (15.8%)" in err
    assert "used: 15.8% of the log" in text


def test_closed_hours(restless, write):
    states = paths(THREE, 300, seed=22)
    lines = ["time,a,b"] + [f"{t // 10 * 24 + t % 10},{states[t, 0]},{states[t, 1]}" for t in range(300)]
    words = ["replay", write("\n".join(lines)), "--columns", "state=*", "--learner", "round-robin"]
    for closed in ("passes", "stops"):
        code, text, err = restless(*words, "--closed", closed)
        assert (code, err) == (0, "")
        assert f"closed: 406 slots with nothing logged, in which time {closed}" in text.splitlines()


def test_fit_reads_alike(restless, flights):
    code, text, err = restless("fit", flights, *NAMES, "--slot", "1h", "--json")
    assert code == 0
    assert json.loads(text)["observations"] == 120 + 95
    assert err.count("\n") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--columns", "when"], "--columns has 'when'; give role=name, such as time=time_hour,arm=origin,value=late"),
        (["--columns", "time=when,arm=where,value="], "--columns has 'value='; give role=name"),
        (["--columns", "time=when,arm=wher,value=late"], "no column 'wher' for arm; did you mean 'where'?"),
        ([*NAMES, "--slot", "1 day or so"], "slot is '1 day or so'; give a number and a unit"),
        ([*NAMES[:3], "--duplicates", "first"], "duplicates is 'first'; choose from refuse, mean, last"),
        (
            [*NAMES[:3], "--slot", "1h"],
            "arm 'EWR' was logged in slot 1 before, at line 3; keep one of the two, make slots",
        ),
        ([*NAMES, "--wide"], "a wide log has arms in columns and no column arm; leave out either of the two"),
    ],
)
def test_refusals(restless, flights, words, message):
    code, text, err = restless("replay", flights, *words)
    assert (code, text, err.count("\n")) == (2, "", 1)
    assert message in err


def test_from_and_to(restless, write):
    rng = np.random.default_rng(2)
    states = rng.integers(0, 2, (120, 2)).tolist()
    stamps = [str(np.datetime64("2024-05-01T11:00") + np.timedelta64(t, "m")) for t in range(120)]
    log = write(
        "\n".join(
            ["time,arm,state", *(f"{at},{'ab'[i]},{states[t][i]}" for t, at in enumerate(stamps) for i in (0, 1))]
        )
    )
    code, out, err = restless("fit", log, "--from", "12:00", "--json")
    assert (code, "120 of 240 lines taken: from 12:00" in err) == (0, True)
    assert [json.loads(out)[key] for key in ("first_slot", "last_slot", "observations")] == [60, 119, 120]
    words = ("--learner", "round-robin", "--from", "11:30", "--to", "12:00", "--json")
    assert json.loads(restless("replay", log, *words)[1])["slots"] == 31
    pulls = write(
        "\n".join(["time,arm,state", *(f"{at},{'ab'[states[t][1]]},{states[t][0]}" for t, at in enumerate(stamps))])
    )
    words = ("--policy", "best-arm", "--draws", "10", "--from", "11:20", "--to", "12:30", "--json")
    assert json.loads(restless("evaluate", pulls, *words)[1])["pulls"] == 71
    assert restless("fit", log, "--to", "noon")[0] == 2
