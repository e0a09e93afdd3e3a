"""Compiling: what it leaves alone, when it is told of, and the process that does a part of it ahead."""

import gc
import json
import os
import subprocess
import sys
from threading import Event, Thread
from types import SimpleNamespace

import pytest

from restless_bandits._internal import compiling as compiling_module
from restless_bandits._internal import workers
from restless_bandits._internal.files import locked
from restless_bandits.cli.simulate import PLAY_A_SLOT, REHEARSE, compile_slots_ahead
from restless_bandits.model.problem import Problem
from restless_bandits.simulation import pools, runner, world_kernels
from restless_bandits.simulation.engine import World
from restless_bandits.simulation.jobs import play_a_slot
from restless_bandits.simulation.time_estimates import play_beginning

LINE = "compiling, once: a first command takes some seconds longer\n"
IMPATIENT = "_compile.LONG_COMPILATION_SECONDS = 1e-3; main()"


class Timers:
    """Clock and timers of ``compiling_module``, which go when they are told to."""

    def __init__(self, monkeypatch):
        self.now, self.delays, self.running = 0.0, [], 0
        monkeypatch.setattr(compiling_module, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(compiling_module, "Timer", self.make)

    def make(self, delay, function):
        return SimpleNamespace(start=lambda: self.start(delay), cancel=self.cancel)

    def start(self, delay):
        self.delays.append(delay)
        self.running += 1

    def cancel(self):
        self.running = 0


@pytest.fixture
def timers(monkeypatch):
    return Timers(monkeypatch)


class TestWatch:
    def test_seconds_of_all_compilations_add_up_to_the_long_ones(self, timers):
        watch = compiling_module.CompilationTimer()
        watch.begin()
        timers.now += 1.5
        watch.begin()
        timers.now += 0.25
        watch.end()
        assert (timers.delays, timers.running) == ([compiling_module.LONG_COMPILATION_SECONDS], 1)
        watch.end()
        assert timers.running == 0
        timers.now += 100.0
        watch.begin()
        assert (timers.delays, timers.running) == (
            [compiling_module.LONG_COMPILATION_SECONDS, compiling_module.LONG_COMPILATION_SECONDS - 1.75],
            1,
        )
        timers.now += 5.0
        watch.end()
        watch.begin()
        watch.end()
        assert len(timers.delays) == 2

    def test_its_clock_stands_still_meanwhile(self, timers, monkeypatch):
        monkeypatch.setattr(compiling_module, "compilation_timer", watch := compiling_module.CompilationTimer())
        timers.now = 10.0
        assert compiling_module.clock() == 10.0
        watch.begin()
        timers.now = 14.0
        assert compiling_module.clock() == 10.0
        watch.end()
        timers.now = 15.0
        assert compiling_module.clock() == 11.0

    def test_long_ones_are_told_of_while_they_last(self, monkeypatch):
        told = Event()
        monkeypatch.setattr(compiling_module, "compiling_long", told)
        monkeypatch.setattr(compiling_module, "LONG_COMPILATION_SECONDS", 0.01)
        watch = compiling_module.CompilationTimer()
        watch.begin()
        assert told.wait(60)
        watch.end()

    @pytest.mark.parametrize("collecting", [True, False])
    def test_the_collector_is_left_as_it_was(self, collecting, timers):
        before = gc.isenabled()
        (gc.enable if collecting else gc.disable)()
        try:
            watch = compiling_module.CompilationTimer()
            watch.begin()
            watch.begin()
            watch.end()
            assert not gc.isenabled()
            watch.end()
            assert gc.isenabled() == collecting
        finally:
            (gc.enable if before else gc.disable)()

    def test_a_kernel_that_does_not_compile_ends_it_too(self):
        @compiling_module.njit
        def kernel(x):
            return x.nothing

        assert gc.isenabled()
        with pytest.raises(Exception, match="nothing"):
            kernel(1)
        assert gc.isenabled()


def test_what_is_kept_on_disk(tmp_path):
    def some_kernel():
        pass

    def kernel(folder):
        return SimpleNamespace(stats=SimpleNamespace(cache_path=folder), py_func=some_kernel)

    assert not compiling_module.is_kept(kernel(None))
    assert not compiling_module.is_kept(kernel(str(tmp_path)))
    (tmp_path / "test_compile.other_kernel-1.py311.nbi").touch()
    assert not compiling_module.is_kept(kernel(str(tmp_path)))
    index = tmp_path / "test_compile.some_kernel-1.py311.nbi"
    index.touch()
    assert compiling_module.is_kept(kernel(str(tmp_path)))
    # Older than its source: Numba will not take it.
    os.utime(index, (0, 0))
    assert not compiling_module.is_kept(kernel(str(tmp_path)))


def test_a_kernel_brings_numba_when_it_is_called():
    code = (
        "import sys\n"
        "from restless_bandits.learning.learners.confidence_bounds import (kl_upper, order_cost)\n"
        "from restless_bandits._internal import compiling as _compile\n"
        "print('numba' in sys.modules, _compile.is_loaded(kl_upper), kl_upper.__name__)\n"
        "kl_upper(0.5, 0.1)\n"
        "print('numba' in sys.modules, _compile.is_loaded(kl_upper), _compile.is_loaded(order_cost))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False False kl_upper\nTrue True False\n"


def test_two_threads_that_make_dispatchers_do_not_wait_for_each_other():
    """One thread waits for Numba's lock, and the thread that holds the lock needs the dispatcher of another kernel."""
    waits, needed = compiling_module.njit(lambda x: x + 1), compiling_module.njit(lambda x: x + 2)
    from numba.core.compiler_lock import global_compiler_lock

    begun, held = Event(), Event()

    def compile_and_look_up():
        with global_compiler_lock:
            held.set()
            begun.wait(10)
            # Long enough for the other thread to reach the lock.
            other.join(0.2)
            assert needed.dispatcher is needed.dispatcher

    def look_up():
        held.wait(10)
        begun.set()
        assert waits.dispatcher is waits.dispatcher

    other = Thread(target=look_up, daemon=True)
    threads = [Thread(target=compile_and_look_up, daemon=True), other]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)
    assert waits.is_made
    assert needed.is_made


def test_a_helper_is_compiled_into_kernels_and_plain_for_python():
    @compiling_module.helper
    def doubled(x):
        return 2 * x

    @compiling_module.njit
    def kernel(x):
        return doubled(x) + 1

    assert kernel(3) == 7
    assert doubled("ab") == "abab"
    assert len(kernel.signatures) == 1


def test_planning_compiles_no_kernel_for_two_layouts():
    """Arrays that cannot be written have a type of their own: a kernel called with both kinds is compiled twice."""
    code = (
        "import sys\nimport restless_bandits as rb\nfrom restless_bandits._internal.compiling import Kernel\n"
        "rb.simulate(rb.Problem.builtin('paper-1'), 'likelihood-ucb', 300, runs=1, comparator=0.4, engine='threads')\n"
        "kernels = {one for name, module in list(sys.modules.items()) if name.startswith('restless_bandits.')\n"
        "           for one in vars(module).values() if isinstance(one, Kernel) and 'dispatcher' in vars(one)}\n"
        "print(sorted(one.__name__ for one in kernels if len(one.signatures) > 1))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("engine", "kept", "begun"), [("processes", False, 1), ("processes", True, 0), ("threads", False, 0)]
)
def test_processes_find_compiled_what_they_need(engine, kept, begun, monkeypatch):
    cells = []
    monkeypatch.setattr(runner, "is_kept", lambda kernel: kept)
    monkeypatch.setattr(runner, "play_beginning", lambda cell: (cells.append(cell), play_beginning(cell)))
    result = runner.simulate(Problem.builtin("paper-1"), "ucb1", 500, runs=2, jobs=1, engine=engine)
    assert [cell.label for cell in cells] == begun * ["ucb1"]
    # What is played beforehand leaves no trace.
    alone = runner.simulate(Problem.builtin("paper-1"), "ucb1", 500, runs=2, jobs=1, engine="threads")
    assert (result.realised_reward == alone.realised_reward).all()


OWN = """
import restless_bandits as rb
from restless_bandits._internal import compiling as _compile
from restless_bandits.learning.learners import UCB1

@_compile.njit
def kernel(x):
    return x + 1.0

def oracle(problem):
    kernel(1.0)
    return rb.oracles.policy("whittle", problem)

class Learner(UCB1):
    name = "own"

    def plan(self, record, task, rng):
        kernel(1.0)
        return super().plan(record, task, rng)
"""
"""A module with one small kernel: all others come from the cache, so that little is compiled."""


def command(*words, code="main()", folder=None, kernels=None):
    """The command in a process of its own, with its working folder and perhaps a separate folder of kernels.

    ``code`` is the program of the process.
    """
    lines = (
        "import sys\nfrom restless_bandits._internal import compiling as _compile\n"
        f"from restless_bandits.cli import main\n{code}"
    )
    done = subprocess.run(
        [sys.executable, "-c", lines, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env=os.environ | ({} if kernels is None else {"NUMBA_CACHE_DIR": str(kernels)}),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done


def untimed(answer):
    """A JSON answer without the numbers that differ each time: seconds and what is derived from them."""
    timed = {"seconds", "slots_per_second"}
    return json.loads(answer, object_hook=lambda part: {k: v for k, v in part.items() if k not in timed})


def compiled_long():
    """What a worker does that has compiled for long, but for the rest."""
    compiling_module.compiling_long.set()
    return True


class TestTelling:
    @pytest.mark.parametrize(
        "words",
        [
            ["solve", "paper-1", "--oracle", "own:oracle"],
            ["simulate", "paper-1", "--learner", "own:Learner", "--horizon", "50", "--runs", "1", "--jobs", "1"],
        ],
        ids=["solve", "simulate"],
    )
    def test_once_and_never_again(self, words, tmp_path):
        (tmp_path / "own.py").write_text(OWN)
        first, again = (command(*words, "--json", folder=tmp_path, code=IMPATIENT) for _ in range(2))
        assert first.stderr == LINE
        assert again.stderr == ""
        assert untimed(first.stdout) == untimed(again.stdout)

    def test_the_library_says_nothing(self, tmp_path):
        code = (
            "_compile.LONG_COMPILATION_SECONDS = 1e-3\n"
            "from restless_bandits.learning.learners.confidence_bounds import kl_upper\n"
            "kl_upper(0.5, 0.1)\nprint(_compile.compiling_long.is_set())"
        )
        done = command(kernels=tmp_path, code=code)
        assert (done.stdout, done.stderr) == ("True\n", "")

    def test_workers_tell_whoever_started_them(self, monkeypatch):
        flags = (Event(), Event())
        monkeypatch.setattr(workers, "COMPILING", flags)
        pool = workers.WorkerPool(1, report_compilation=True)
        try:
            assert pool.submit(compiled_long).result()
            assert flags[1].wait(60)
            assert not flags[0].is_set()
        finally:
            pool.close()


CODE_ON_TWO_CORES = "from restless_bandits.simulation import pools\npools.cores = lambda: 2\n"


class TestAhead:
    @pytest.fixture
    def begin(self, monkeypatch):
        """Ask twice for the process, and return the words of what was started."""
        started = []

        def start(words, **_):
            started.append(words)
            return SimpleNamespace(kill=lambda: None)

        def begin():
            compile_slots_ahead("likelihood-ucb")
            compile_slots_ahead("likelihood-ucb")
            # Kernels wait for the process exactly where there is one.
            assert len(started) == int(compiling_module.compiling_ahead.is_set())
            return started

        monkeypatch.setattr(compiling_module, "compiling_ahead", Event())
        monkeypatch.setattr(compiling_module, "is_kept", lambda kernel: False)
        monkeypatch.setattr(pools, "cores", lambda: 2)
        monkeypatch.setattr(compiling_module.subprocess, "Popen", start)
        compile_slots_ahead.cache_clear()
        yield begin
        compile_slots_ahead.cache_clear()

    def test_starts_once_where_the_kernel_is_not_kept(self, begin):
        assert [words[0] for words in begin()] == [sys.executable]

    def test_not_where_the_kernel_is_kept(self, begin, monkeypatch):
        monkeypatch.setattr(compiling_module, "is_kept", lambda kernel: True)
        assert begin() == []

    def test_not_on_a_single_core(self, begin, monkeypatch):
        monkeypatch.setattr(pools, "cores", lambda: 1)
        assert begin() == []

    def test_not_where_no_folder_can_be_written(self, begin, monkeypatch):
        monkeypatch.setattr(world_kernels, "run_plan", SimpleNamespace(stats=SimpleNamespace(cache_path=None)))
        assert begin() == []

    def test_a_process_that_cannot_start_is_nobodys_loss(self, begin, monkeypatch):
        def fail(*_, **__):
            raise OSError

        monkeypatch.setattr(compiling_module.subprocess, "Popen", fail)
        assert begin() == []

    # All kernels of a command, compiled anew: twenty processor seconds.
    @pytest.mark.slow
    def test_each_kernel_is_compiled_by_one_process(self, tmp_path):
        """The first process plans, and finds the kernel of the slots on disk when its first plan is to be played."""
        code = (
            "import sys\nfrom restless_bandits._internal import compiling\ncompiling._numba()\n"
            "from numba.core.event import install_recorder\n"
            "from restless_bandits.cli import main\n"
            "with install_recorder('numba:compile') as here:\n"
            "    try:\n        main()\n    except SystemExit:\n        pass\n"
            "names = [event.data['dispatcher'].py_func.__name__ for _, event in here.buffer if event.is_start]\n"
            "print('gather' in names, 'run_plan' in names, 'sweep_rows' in names, file=sys.stderr)"
        )
        words = ["simulate", "paper-1", "--horizon", "20", "--runs", "1", "--json"]
        done = command(*words, kernels=tmp_path, code=CODE_ON_TWO_CORES + code)
        assert done.stderr.splitlines()[-1] == "True False False"

    @pytest.fixture
    def shared(self, tmp_path, monkeypatch):
        """A kernel that two processes may compile, with the list of compiled signatures and the file of its lock."""
        happened = []
        kernel = SimpleNamespace(
            compile=happened.append, stats=SimpleNamespace(cache_path=str(tmp_path)), py_func=compiled_long
        )
        compiling_module.compile_in_turn(kernel)
        monkeypatch.setattr(compiling_module, "compiling_ahead", Event())
        return kernel, happened, tmp_path / f"{compiled_long.__module__}.{compiled_long.__name__}"

    def test_a_kernel_waits_for_the_process_that_compiles_it(self, shared):
        kernel, happened, place = shared
        compiling_module.compiling_ahead.set()
        waiting = Thread(target=kernel.compile, args=("types",))
        with locked(place):
            waiting.start()
            waiting.join(0.2)
            assert (waiting.is_alive(), happened) == (True, [])
        waiting.join(60)
        assert happened == ["types"]

    def test_a_kernel_is_compiled_here_where_the_other_process_takes_too_long(self, shared, monkeypatch):
        kernel, happened, place = shared
        compiling_module.compiling_ahead.set()
        monkeypatch.setattr(compiling_module, "COMPILATION_TIMEOUT_SECONDS", 0.05)
        with locked(place):
            kernel.compile("types")
        assert happened == ["types"]

    def test_a_process_that_compiles_alone_takes_no_lock(self, shared):
        kernel, happened, place = shared
        with locked(place):
            kernel.compile("types")
        assert happened == ["types"]

    def test_rehearsed_kernels_have_the_types_of_all_plans(self):
        code = (
            "import restless_bandits as rb\n"
            "from restless_bandits.learning.learners import confidence_bounds as bounds, exploration_kernels as ahead\n"
            f"{PLAY_A_SLOT}{REHEARSE.format(spec='likelihood-ucb')}\n"
            "kernels = (ahead.follow, ahead.anticipate, ahead.optimistic_chains, ahead.optimistic_rewards,\n"
            "           ahead.weights_of, bounds.arm_means)\n"
            "print([len(kernel.signatures) for kernel in kernels])\n"
            "for problem in (rb.Problem.builtin('paper-1'), rb.Problem.random(3, 3, seed=1)):\n"
            "    rb.simulate(problem, 'likelihood-ucb', 100, runs=1, comparator=0.4, engine='threads')\n"
            "print([len(kernel.signatures) for kernel in kernels])"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [str([1] * 6)] * 2

    def test_what_was_compiled_ahead_is_found(self):
        # In this process, which takes its kernels from the same folder.
        play_a_slot(World(Problem.builtin("paper-1")))
        code = (
            f"{PLAY_A_SLOT}\n"
            "from restless_bandits.simulation import world_kernels as _kernels\n"
            "print(_compile.compiling.is_set(), sum(_kernels.run_plan.stats.cache_hits.values()))"
        )
        assert command(code=code).stdout == "False 1\n"

    def test_the_slot_played_ahead_has_the_types_of_all_others(self):
        code = (
            "import restless_bandits as rb\n"
            "from restless_bandits.simulation import world_kernels as _kernels\n"
            f"{PLAY_A_SLOT}\n"
            "for problem in (rb.Problem.builtin('paper-1'), rb.Problem.random(3, 3, seed=1, plays=2)):\n"
            "    rb.simulate(problem, ['ucb1', 'informed'], 20, runs=1, comparator=0.4, engine='threads')\n"
            "print(len(_kernels.run_plan.signatures))"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout == "1\n"
