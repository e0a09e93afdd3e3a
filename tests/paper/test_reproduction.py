"""A whole reproduction, small: numbers, files, interruptions."""

import contextlib
import dataclasses
import io
import json
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numba
import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.cli import main
from restless_bandits.paper.experiments import reproduce, reproduction, timing
from restless_bandits.paper.experiments.design import design
from tests.paper import small as small_command
from tests.paper.small import small_design

WORDS = ["figure-a", "--runs", "3"]


def command(*words):
    """The command, with a small design in place of the paper's."""
    return [sys.executable, small_command.__file__, "reproduce", *words]


def run_here(*words):
    """What the command prints on stdout, run in this process with a small design."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(reproduction, "design", small_design)
        patch.setattr(sys, "argv", ["restless", "reproduce", *words])
        with contextlib.suppress(SystemExit):
            main()
    return printed.getvalue()


def produced(folder):
    """What a reproduction leaves for its reader, by name."""
    files = [folder / "report.html", folder / "results.json", *sorted((folder / "figures").iterdir())]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def begun(folder):
    """How many cells have stored runs; a slow machine stores them in more blocks, but not in more cells."""
    return len({path.parent for path in folder.rglob("runs-*.npz")})


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """The folder of an uninterrupted small reproduction, and what the command printed."""
    folder = tmp_path_factory.mktemp("small") / "out"
    return folder, json.loads(run_here(*WORDS, "--out", str(folder), "--engine", "threads", "--json"))


def test_numbers_are_those_of_a_simulation(small):
    _, answer = small
    published = next(figure for figure in answer["figures"] if figure["protocol"] == "published")
    line = published["lines"][0]
    assert line["learner"] == "Restless-UCB"
    for j in (0, -1):
        horizon = line["horizons"][j]
        result = rb.simulate(
            rb.Problem.builtin("paper-1"), line["spec"], horizon, runs=3, checkpoints=1, comparator="whittle"
        )
        assert line["regret_mean"][j] == result.regret("expected")[0, :, -1].mean()
    fair = next(figure for figure in answer["figures"] if figure["protocol"] == "fair")
    line = next(line for line in fair["lines"] if line["learner"] == "TS-9")
    assert line["spec"] == "ts-9"
    result = rb.simulate(rb.Problem.builtin("paper-1"), "ts-9", 10_000, runs=3, checkpoints=line["horizons"])
    assert line["regret_mean"] == result.regret("gap")[0].mean(axis=0).tolist()


def test_report_needs_nothing_from_outside(small):
    folder, _ = small
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=[\"'](?!#|data:)", page)
    for loader in ("@import", "<img", "<link", "fetch(", "XMLHttpRequest", "import(", "url("):
        assert loader not in page
    assert set(re.findall(r"https?://[^\"' ]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert page.count('<svg class="chart"') == 3
    for needed in ("restless reproduce figure-a --runs 3", "numba", "seed", "Instance 1"):
        assert needed in page
    assert str(folder) not in page


def test_every_claim_is_in_the_report(small):
    folder, answer = small
    page = (folder / "report.html").read_text(encoding="utf-8")
    for claim in design().claims:
        assert f'id="claim-{claim.id}"' in page
    assert {entry["id"] for entry in answer["claims"]} == {claim.id for claim in design().claims}
    assert {entry["verdict"] for entry in answer["claims"] if entry["id"] == "lowest-radio"} == {"not run"}


@pytest.mark.slow
def test_killed_again_and_again_it_ends_with_the_same_bytes(small, tmp_path, monkeypatch):
    whole, folder = small[0], tmp_path / "out"
    expected = produced(whole)
    cells = begun(whole)
    # Processes once; threads start sooner, and who plays changes no byte.
    for share, engine in ((0.05, "processes"), (0.4, "threads"), (0.8, "threads")):
        words = command(*WORDS, "--out", str(folder), "--engine", engine, "--jobs", "1")
        with subprocess.Popen(words, stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while begun(folder) < share * cells and time.monotonic() < deadline:
                time.sleep(0.01)
            process.kill()
        assert process.returncode == -signal.SIGKILL
        assert not (folder / "report.html").exists()
    monkeypatch.setattr(reproduction, "design", small_design)
    reproduce(["figure-a"], runs=3, out=folder, engine="threads")
    assert produced(folder) == expected


def test_a_second_time_plays_nothing_and_writes_the_same(small, monkeypatch):
    class NoPool:
        width = 1

        def submit(self, cell, numbers):
            pytest.fail(f"{cell.label} is played again")

        def close(self):
            pass

    folder, answer = small
    before = produced(folder)
    asked = []
    monkeypatch.setattr(reproduction, "design", small_design)
    monkeypatch.setattr(reproduction, "open_pool", lambda *words, **_: asked.append(words) or nullcontext(NoPool()))
    again = reproduce(["figure-a"], runs=3, out=folder, engine="dask", address="tcp://there:8786")
    assert asked == [("dask", None, "tcp://there:8786")]
    assert produced(folder) == before
    assert json.loads(json.dumps(again.as_dict()["figures"])) == answer["figures"]


def test_ctrl_c_is_one_sentence(small, tmp_path, interruptible):
    # After ``small``, which has compiled what would have to be told otherwise.
    # So many runs that it would be long before they end.
    words = command("figure-b", "--runs", "5000", "--jobs", "1", "--out", str(tmp_path / "out"))
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        while not list(tmp_path.rglob("runs-*.npz")):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert re.fullmatch(
        r"this will take about [0-9.]+ (s|min|h)\n"
        r"( *[0-9]+% after .*\n)*"
        r"Interrupted; what was played is stored in .*out, and the same again goes on from there\n",
        err,
    )


def small_table(**changes):
    """Table 1 with short runs of two learners on two numbers of arms."""
    (table,) = design(["table-1"]).items
    lines = tuple(dataclasses.replace(line, runs=(2, 1), paper=line.paper[:2]) for line in table.lines[:2])
    sizes = {"horizon": 3000, "problems": ("table-2", "table-3"), "arms": (2, 3), "lines": lines, "repeats": 2}
    return dataclasses.replace(table, **sizes | changes)


COUNT_COMPILED = """
import sys
from pathlib import Path
from numba.core.dispatcher import Dispatcher
from restless_bandits.paper.experiments import timing
from tests.paper.test_reproduction import small_table

measure, timed, made = timing.clock, [], []
add_overload = Dispatcher.add_overload

def add_and_count(dispatcher, compiled):
    made.append(dispatcher)
    add_overload(dispatcher, compiled)

def clock(work):
    before = len(made)
    found = measure(work)
    timed.append(len(made) - before)
    return found

Dispatcher.add_overload, timing.clock = add_and_count, clock
table = small_table()
timing.measure_times(small_table(lines=table.lines[1:]), Path(sys.argv[1]) / "times.json", 0)
print(len(timed), sum(timed), len(made))
"""


class TestTimes:
    def test_measured_once_and_kept(self, tmp_path):
        path = tmp_path / "times.json"
        times, build, weather = timing.measure_times(small_table(), path, 0)
        counted = {label: {n: len(t) for n, t in by_arms.items()} for label, by_arms in times.items()}
        assert counted == {label: {2: 2, 3: 1} for label in ("Restless-UCB", "TS-9")}
        assert all(len(spent) == 2 * timing.BUILDS for spent in build.values())
        assert 0 <= weather["waited"] < 1
        assert weather["jitter"] >= 1
        clocks = json.loads(path.read_text())["times"]
        # Twice in two rounds; the only one of its kind once.
        assert {len(clocks[key]) for key in clocks if key.startswith("table-2")} == {2}
        assert {len(clocks[key]) for key in clocks if key.startswith("table-3")} == {1}
        again, build_again, _ = timing.measure_times(small_table(), path, 0)
        assert all(np.array_equal(times[label][n], again[label][n]) for label in times for n in (2, 3))
        assert all(np.array_equal(build[n], build_again[n]) for n in build)

    def test_in_the_report(self, tmp_path, monkeypatch):
        monkeypatch.setattr(reproduction, "design", lambda items, *, quick: dataclasses.replace(whole, items=(short,)))
        whole, short = design(["table-1"]), small_table(most_runs=1)
        # One of the lines is left out where it takes too long.
        lines = short.lines[0], dataclasses.replace(short.lines[1], cost=(1.0, 99.0))
        short = dataclasses.replace(short, lines=lines, longest=10.0)
        found = reproduce(["table-1"], out=tmp_path, jobs=1, engine="threads")
        assert {(entry["learner"], entry["arms"]) for entry in found.as_dict()["table"]} == {
            *((lines[0].label, arms) for arms in (2, 3)),
            (lines[1].label, 2),
        }
        page = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "runs waited" in page
        assert '– <span class="note">of 6 s</span>' in page
        (verdict,) = [one for one in found.verdicts if one.claim.id == "linear-construction"]
        assert verdict.findings[0].numbers["interval"][0] < verdict.findings[0].numbers["interval"][1]

    def test_the_least_time_counts(self, tmp_path, monkeypatch):
        spent = iter(np.linspace(9, 1, 1000))
        monkeypatch.setattr(timing, "clock", lambda work: timing.ElapsedSeconds(float(next(spent)), 10.0))
        path = tmp_path / "times.json"
        times, _, weather = timing.measure_times(small_table(), path, 0)
        clocks = json.loads(path.read_text())["times"]
        (key,) = (key for key in clocks if key.startswith("table-2 ts-9") and key.endswith(" 1"))
        assert times["TS-9"][2][1] == min(one[0] for one in clocks[key])
        assert weather["waited"] > 0.1

    def test_nothing_is_compiled_in_a_time(self):
        """A first call compiles; that time is thrown away."""
        calls = []

        @numba.njit
        def kernel(x):
            return x + 1

        def work():
            calls.append(len(kernel.signatures))
            kernel(1)

        found = timing.clock(work)
        assert calls == [0, 1]
        assert found.spent < 0.05

    def test_nothing_is_compiled_in_a_time_of_a_new_process(self, tmp_path):
        """The warm-up reaches all that a run needs, so that no time is thrown away either.

        A kernel that is read from the cache counts like one that is compiled, so the cache may be full or empty.
        """
        done = subprocess.run(
            [sys.executable, "-c", COUNT_COMPILED, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        timed, made_in_them, made_in_all = map(int, done.stdout.split())
        assert timed == 5 + 2 * timing.BUILDS * len(timing.BUILD_ARMS)
        assert made_in_them == 0
        assert made_in_all > 0

    def test_times_of_other_code_are_not_taken(self, tmp_path, monkeypatch):
        path = tmp_path / "times.json"
        one = timing.ElapsedSeconds(1.0, 2.0)
        timing.StoredTimes(path).add("x", one)
        assert timing.StoredTimes(path).clocks("x") == [one]
        monkeypatch.setattr(timing, "fingerprint", lambda: "other")
        assert timing.StoredTimes(path).clocks("x") == []

    @pytest.mark.parametrize("clock", ["", "[1]", "[1, NaN]", "[-1, 2]", "[0, 1]", f"[{'9' * 400}, 1]", "[" * 5000])
    def test_a_damaged_file_is_measured_again(self, tmp_path, clock):
        path = tmp_path / "times.json"
        timing.StoredTimes(path).add("x", timing.ElapsedSeconds(1.5, 2.5))
        whole = json.dumps(json.loads(path.read_text()))
        path.write_text(whole)
        assert timing.StoredTimes(path).clocks("x") == [(1.5, 2.5)]
        path.write_text(whole.replace("[1.5, 2.5]", clock))
        assert timing.StoredTimes(path).clocks("x") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(items=["figure-q"]), "no item 'figure-q'"),
        (dict(runs=1), "runs is 1"),
        (dict(runs=2.5), "runs is 2.5"),
        (dict(jobs=0), "jobs is 0"),
        (dict(seed=-1), "seed is -1"),
    ],
)
def test_bad_input(options, message, tmp_path):
    with pytest.raises(rb.ProblemError, match=message):
        reproduce(**({"items": ["inside"], "quick": True, "out": tmp_path / "out"} | options))
    assert not (tmp_path / "out").exists()


def test_bad_item_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["restless", "reproduce", "figur-a", "--out", str(tmp_path / "x")])
    with pytest.raises(SystemExit) as stopped:
        main()
    told = capsys.readouterr().err
    assert stopped.value.code == 2
    assert "did you mean 'figure-a'" in told
    assert "Traceback" not in told
    assert not Path(tmp_path / "x").exists()


def test_inside(tmp_path, monkeypatch):
    def shrunk(items, *, quick=False):
        plan = design(items, quick=quick)
        return dataclasses.replace(
            plan, items=tuple(dataclasses.replace(item, horizon=10_000, runs=24) for item in plan.items)
        )

    monkeypatch.setattr(reproduction, "design", shrunk)
    found = reproduce(["inside"], out=tmp_path / "out", jobs=1)
    (verdict,) = [one for one in found.verdicts if one.claim.id == "ts9-finds-truth"]
    assert verdict.outcome == "holds"
    (item,) = found.plan.items
    for one in item.learned(item.runs, found.seed):
        # Estimates are unbiased but for the stopping rule: within five standard errors and 0.002 of the truth.
        error = one.estimated.std(axis=0, ddof=1) / np.sqrt(len(one.estimated))
        assert (np.abs(one.estimated.mean(axis=0) - one.truth) < 5 * error + 0.002).all()
        # The optimistic chain stays longer in the good state, and leaves the bad one sooner.
        assert (one.optimistic[:, :, 0] >= one.estimated[:, :, 0]).all()
        assert (one.optimistic[:, :, 1] <= one.estimated[:, :, 1]).all()
    arms = item.stretch(found.seed).arms
    assert set(arms) == {0, 1}
    assert (np.diff(arms) != 0).sum() > 10
    assert (tmp_path / "out" / "figures" / "raster.png").read_bytes().startswith(b"\x89PNG")
