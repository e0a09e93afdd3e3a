"""A real cluster of separate processes, some of which are killed."""

import contextlib
import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import restless_bandits as rb
from restless_bandits.cli import main
from restless_bandits.learning.learners import RestlessUCB
from restless_bandits.simulation import scheduler, simulate
from tests.optional import needed
from tests.simulation.test_runner import assert_same

psutil = needed("psutil")
dask_pool = needed("restless_bandits.simulation.dask_pool")

# One worker for all of them: the cluster takes seconds to start.

ROOT = Path(__file__).resolve().parent.parent.parent
RUNS = 24
OPTIONS = dict(horizon=2000, runs=RUNS, seed=3)


@dataclasses.dataclass(frozen=True)
class Fatal(RestlessUCB):
    """Restless-UCB that once, when the folder holds a file ``armed``, kills a process in the middle of a run."""

    name = "fatal"
    folder: str = ""
    victim: int = 0

    def plan(self, record, task, rng):
        if record.plans:
            try:
                Path(self.folder, "armed").rename(Path(self.folder, "fired"))
            except OSError:
                pass
            else:
                os.kill(self.victim or os.getpid(), signal.SIGKILL)
        return super().plan(record, task, rng)


STARTED_WITHIN = 120.0
"""Seconds in which workers are there even on a crowded machine."""


class Cluster:
    """A scheduler that gives up on a piece at the first death of a worker, and workers without nannies."""

    def __init__(self, folder):
        self.folder = folder
        self.scheduler, self.workers = None, []
        paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self.env = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
            # A worker on a crowded machine may be there long before its scheduler.
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT": f"{STARTED_WITHIN}s",
        }

    def with_workers(self, count):
        """Return the address of the scheduler, with so many workers that live."""
        if self.scheduler is None or self.scheduler.poll() is not None:
            self.close()
            with socket.create_server(("127.0.0.1", 0)) as free:
                port = free.getsockname()[1]
            self.address = f"tcp://127.0.0.1:{port}"
            self.scheduler = self._start("scheduler", f"--port={port}")
        self.workers = [worker for worker in self.workers if worker.poll() is None]
        while len(self.workers) > count:
            _kill(self.workers.pop())
        while len(self.workers) < count:
            self.workers.append(self._start("worker", self.address, "--no-nanny", "--nthreads=1"))
        deadline = time.monotonic() + STARTED_WITHIN
        with dask_pool.distributed.Client(self.address, set_as_default=False, timeout=STARTED_WITHIN) as client:
            while len(client.ncores()) != count:
                assert all(worker.poll() is None for worker in self.workers), "a worker has ended before it was asked"
                assert time.monotonic() < deadline, f"{count} workers were started, and these came: {client.ncores()}"
                time.sleep(0.05)
        return self.address

    def _start(self, what, *words):
        words = [sys.executable, "-m", "dask", what, *words, "--host=127.0.0.1", "--no-dashboard"]
        return subprocess.Popen(
            words, env=self.env, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def close(self):
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            _kill(process)
        self.workers = []


def alive_in_group(group):
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.cmdline())
    return found


def _kill(process):
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    started = Cluster(tmp_path_factory.mktemp("cluster"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def problem():
    return rb.Problem.builtin("paper-1")


@pytest.fixture
def fatal(tmp_path, monkeypatch):
    """A learner that kills, and a progress callback that arms it when some runs are finished.

    Runs are played one by one, so that at that time most of them are not even sent.
    """
    monkeypatch.setattr(scheduler, "PIECE_SECONDS", 0.0)
    (tmp_path / "arms").mkdir()

    def make(**options):
        return Fatal(m=60, folder=str(tmp_path / "arms"), **options)

    def arm(done, total):
        if done >= 6 and not any((tmp_path / "arms").iterdir()):
            (tmp_path / "arms" / "armed").touch()

    make.arm = arm
    make.fired = tmp_path / "arms" / "fired"
    return make


@pytest.fixture(scope="module")
def address():
    """The address of a scheduler in this process, with one worker."""
    options = {"processes": False, "protocol": "tcp://", "host": "127.0.0.1", "dashboard_address": None}
    with dask_pool.distributed.LocalCluster(n_workers=1, threads_per_worker=1, **options) as started:
        yield started.scheduler_address


class TestWithinThisProcess:
    """A scheduler and a worker in threads of this process: what can be seen without a process that dies."""

    def test_same_numbers_as_without_a_cluster(self, problem, address):
        given = dict(horizon=300, runs=4, seed=3)
        there = simulate(problem, ["ucb1", "restless-ucb:m=60"], **given, engine="dask", address=address)
        assert_same(there, simulate(problem, ["ucb1", "restless-ucb:m=60"], **given, jobs=1))

    def test_another_version(self, problem, address, monkeypatch):
        other = dask_pool.versions() | {"numpy": "1.2.3"}
        monkeypatch.setattr(dask_pool, "ASK", repr(other))
        sentence = r"the worker tcp://.* has numpy 1\.2\.3 where here is \S+, and its numbers could differ; install the"
        with pytest.raises(rb.ProblemError, match=sentence):
            simulate(problem, "ucb1", 10, engine="dask", address=address)

    def test_a_worker_without_the_package(self, problem, address, monkeypatch):
        monkeypatch.setattr(dask_pool, "PLAY", "__import__('not_there')")
        with pytest.raises(rb.ProblemError, match=r"cannot load its task.*'not_there'.*; install there"):
            simulate(problem, "ucb1", 10, engine="dask", address=address)


@pytest.mark.slow
def test_same_numbers_as_on_one_core(problem, cluster, capfd):
    learners = ["restless-ucb:m=60", "ucb1", "myopic", RestlessUCB(m=lambda horizon: 40)]
    seen = []
    # First, so that workers find all kernels compiled and need not each compile them.
    here = simulate(problem, learners, **OPTIONS, jobs=1)
    address = cluster.with_workers(2)
    there = simulate(
        problem, learners, **OPTIONS, engine="dask", address=address, progress=lambda *now: seen.append(now)
    )
    assert_same(there, here)
    assert seen[0] == (0, 4 * RUNS)
    assert seen[-1] == (4 * RUNS, 4 * RUNS)
    assert len(seen) > 4
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_what_many_pieces_need_goes_over_once(problem, cluster, monkeypatch):
    sent = []
    submit = dask_pool.distributed.Client.submit

    def watch(client, function, *arguments, **options):
        sent.append((function, arguments))
        return submit(client, function, *arguments, **options)

    monkeypatch.setattr(dask_pool.distributed.Client, "submit", watch)
    monkeypatch.setattr(scheduler, "PIECE_SECONDS", 0.0)
    simulate(problem, ["ucb1", "myopic"], **OPTIONS, engine="auto", address=cluster.with_workers(2))
    pieces = [names for function, (*_, names) in sent if function is eval]
    assert len(pieces) == 2 * RUNS
    assert {tuple(names) for names in pieces} == {("wanted", "problem", "rest", "numbers")}
    for names in pieces:
        assert {type(names[name]).__name__ for name in ("problem", "rest")} == {"Future"}
    # The problem, and a cell of each learner.
    assert [function for function, _ in sent if function is not eval] == [bytes] * 3


@pytest.mark.slow
def test_a_piece_that_kills_its_workers_is_an_error(problem, cluster, fatal, monkeypatch):
    monkeypatch.setattr(dask_pool, "SENT_AGAIN", 0)
    with pytest.raises(rb.ProblemError, match=r"took up run \d+ of fatal:.* has died, 1 times over; see the workers'"):
        simulate(problem, fatal(), **OPTIONS, engine="dask", address=cluster.with_workers(2), progress=fatal.arm)


@pytest.mark.slow
def test_a_worker_killed_in_the_middle_costs_no_result(problem, cluster, fatal, tmp_path):
    address, out = cluster.with_workers(2), tmp_path / "out"
    disturbed = simulate(
        problem, [fatal(), "ucb1"], **OPTIONS, engine="dask", address=address, out=out, progress=fatal.arm
    )
    assert fatal.fired.exists()
    assert sum(worker.poll() is None for worker in cluster.workers) == 1
    assert_same(disturbed, simulate(problem, [fatal(), "ucb1"], **OPTIONS, jobs=1))
    assert_same(simulate(problem, [fatal(), "ucb1"], **OPTIONS, out=out), disturbed, seconds=True)


@pytest.mark.slow
@pytest.mark.parametrize("when", ["at the start", "in the middle"])
def test_another_version_on_a_worker(problem, cluster, monkeypatch, when):
    other = dask_pool.versions() | {"numpy": "1.2.3"}
    monkeypatch.setattr(dask_pool, "versions", lambda: other)
    if when == "in the middle":
        monkeypatch.setattr(dask_pool, "ASK", repr(other))
    sentence = r"the worker tcp://.* has numpy \S+ where here is 1\.2\.3, and its numbers could differ; install the"
    with pytest.raises(rb.ProblemError, match=sentence):
        simulate(problem, "ucb1", **OPTIONS, engine="dask", address=cluster.with_workers(1))


@pytest.mark.slow
@pytest.mark.parametrize(("text", "what"), [("ASK", "restless-bandits"), ("PLAY", "its task")])
def test_a_worker_without_the_package(problem, cluster, monkeypatch, text, what):
    monkeypatch.setattr(dask_pool, text, "__import__('not_there')")
    with pytest.raises(rb.ProblemError, match=rf"cannot load {what}.*No module named 'not_there'.*; install there"):
        simulate(problem, "ucb1", **OPTIONS, engine="dask", address=cluster.with_workers(1))


@pytest.mark.slow
def test_an_error_in_a_learner_is_told_as_it_is(problem, cluster):
    @dataclasses.dataclass(frozen=True)
    class Fails(RestlessUCB):
        name = "fails"

        def plan(self, record, task, rng):
            raise ZeroDivisionError("on purpose")

    with pytest.raises(ZeroDivisionError, match="on purpose"):
        simulate(problem, Fails(), **OPTIONS, engine="dask", address=cluster.with_workers(1))


@pytest.mark.slow
def test_all_workers_gone(problem, cluster, fatal, tmp_path, monkeypatch):
    address, out = cluster.with_workers(1), tmp_path / "out"
    monkeypatch.setattr(dask_pool, "WORKERLESS_SECONDS", 1.0)
    monkeypatch.setattr(dask_pool, "LOOK_SECONDS", 0.1)
    with pytest.raises(rb.ProblemError, match=r"scheduler tcp://.* has had no worker for 1 s; .* kept; check"):
        simulate(problem, fatal(), **OPTIONS, engine="dask", address=address, out=out, progress=fatal.arm)
    assert fatal.fired.exists()
    assert len(list(out.rglob("runs-*.npz"))) == 1
    monkeypatch.setattr(dask_pool, "CONNECT_SECONDS", 2.0)
    with pytest.raises(rb.ProblemError, match=r"has had no worker for 2 s; start one with: dask worker tcp://"):
        simulate(problem, "ucb1", **OPTIONS, engine="dask", address=address)


@pytest.mark.slow
def test_a_scheduler_killed_in_the_middle(problem, cluster, fatal, tmp_path):
    address, out = cluster.with_workers(1), tmp_path / "out"
    killer = fatal(victim=cluster.scheduler.pid)
    with pytest.raises(rb.ProblemError, match=r"connection to the scheduler tcp://.* is lost, .* run the same again"):
        simulate(problem, killer, **OPTIONS, engine="dask", address=address, out=out, progress=fatal.arm)
    resumed = simulate(problem, killer, **OPTIONS, out=out)
    assert_same(resumed, simulate(problem, killer, **OPTIONS, jobs=1))


@pytest.mark.slow
class TestLocalCluster:
    def test_a_worker_killed_in_the_middle(self, problem, fatal):
        there = simulate(problem, fatal(), **OPTIONS, engine="dask", jobs=2, progress=fatal.arm)
        assert fatal.fired.exists()
        assert_same(there, simulate(problem, fatal(), **OPTIONS, jobs=1))

    def test_ctrl_c_leaves_results_and_nobody(self, tmp_path, interruptible):
        words = ["simulate", "paper-1", "--learner", "round-robin", "--horizon", "20000", "--runs", "99999", "--json"]
        words += ["--engine", "dask", "--jobs", "1", "--out", str(tmp_path / "out")]
        with subprocess.Popen(
            [sys.executable, "-m", "restless_bandits", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            while not list(tmp_path.rglob("runs-*.npz")):
                time.sleep(0.05)
            # As a terminal does it: to the workers too.
            os.killpg(process.pid, signal.SIGINT)
            out, err = process.communicate(timeout=60)
        assert process.returncode == 130
        # The interrupt may come before it shows how long all of it would take.
        assert re.fullmatch(
            r"(this will take about .* 99999 runs of round-robin, .* each\n)?"
            r"Interrupted: \d+ of 99999 runs are finished and stored in .*; the same again resumes\n",
            err,
        )
        assert json.loads(out)["runs"] > 0
        deadline = time.monotonic() + 20
        while (left := alive_in_group(process.pid)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == []


class TestBadInput:
    @pytest.mark.parametrize("address", ["", "tcp://", "tcp://host", "host", "tcp://host:99999", "http://host:1", 8786])
    def test_malformed_address(self, problem, address):
        with pytest.raises(rb.ProblemError, match=r"address is .*; give that of a Dask scheduler, such as tcp://"):
            simulate(problem, "ucb1", 10, engine="dask", address=address)

    @pytest.mark.parametrize("listening", [False, True], ids=["nobody", "somebody else"])
    def test_no_scheduler(self, problem, listening, capfd, monkeypatch):
        monkeypatch.setattr(dask_pool, "CONNECT_SECONDS", 0.5)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            if not listening:
                server.close()
            with pytest.raises(
                rb.ProblemError, match=rf"no Dask scheduler answers at tcp://127.0.0.1:{port} within 0.5 s"
            ):
                simulate(problem, "ucb1", 10, engine="dask", address=f"127.0.0.1:{port}")
        assert capfd.readouterr() == ("", "")

    def test_an_address_for_another_engine_or_with_jobs(self, problem):
        with pytest.raises(rb.ProblemError, match="the engine is threads; an address goes with the engine dask"):
            simulate(problem, "ucb1", 10, engine="threads", address="tcp://127.0.0.1:1")
        with pytest.raises(
            rb.ProblemError, match=r"jobs is 2, but the cluster at .* brings its own workers; leave out"
        ):
            simulate(problem, "ucb1", 10, engine="dask", address="tcp://127.0.0.1:1", jobs=2)

    def test_traces(self, problem):
        with pytest.raises(rb.ProblemError, match="traces are too large to send over a cluster"):
            simulate(problem, "ucb1", 10, engine="dask", trace=True)

    def test_without_dask(self, problem, monkeypatch):
        monkeypatch.delitem(sys.modules, "restless_bandits.simulation.dask_pool")
        monkeypatch.setitem(sys.modules, "distributed", None)
        with pytest.raises(rb.ProblemError, match=r"needs distributed; pip install '.*\[dask\]' brings it"):
            simulate(problem, "ucb1", 10, engine="dask")

    def test_on_the_command_line(self, monkeypatch, capsys):
        words = ["simulate", "paper-1", "--horizon", "10", "--address", "tcp://here"]
        monkeypatch.setattr(sys, "argv", ["restless", *words])
        with pytest.raises(SystemExit) as stopped:
            main()
        told = capsys.readouterr()
        assert (stopped.value.code, told.out) == (2, "")
        assert re.fullmatch(r"Error: address is 'tcp://here'; give .*\n", told.err)
