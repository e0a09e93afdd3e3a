"""Who plays: a pool by name or one of the caller's own, and processes only where they cannot do harm."""

import subprocess
import sys
import types

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import Problem, ProblemError, simulate
from restless_bandits.simulation import ThreadPool
from restless_bandits.simulation.engines import script_is_guarded

PAPER_1 = Problem.builtin("paper-1")


def test_a_pool_of_ones_own_plays_the_same_and_stays_open():
    expected = simulate(PAPER_1, "round-robin", 50, runs=4, engine="threads")
    pool = ThreadPool(2)
    for _ in range(2):
        found = simulate(PAPER_1, "round-robin", 50, runs=4, engine=pool)
        np.testing.assert_array_equal(found.regret(), expected.regret())
    pool.close()
    with pytest.raises(ProblemError, match="engine is a pool, which has its own workers; leave out jobs and address"):
        simulate(PAPER_1, "round-robin", 50, runs=4, engine=pool, jobs=2)


def test_an_engine_that_is_none():
    for engine in ("thread", 3, None):
        with pytest.raises(ProblemError, match="there is no engine"):
            simulate(PAPER_1, "round-robin", 50, runs=1, engine=engine)


MAIN = """
from dataclasses import dataclass
from typing import ClassVar

import restless_bandits as rb
from restless_bandits.policies import Plan, Slots
from restless_bandits.policies import Cycle
from restless_bandits.simulation import runner

runner.MANY_SLOTS = 1


@dataclass(frozen=True)
class Turns(rb.Learner):
    name: ClassVar[str] = "turns"
    plans_often: ClassVar[bool] = True

    def plan(self, record, task, rng):
        import multiprocessing

        print("child" if multiprocessing.parent_process() else "parent", flush=True)
        return Plan(Cycle(task.plays), Slots(99))


def main():
    rb.simulate(rb.Problem.builtin("paper-1"), Turns(), 20, runs=1, jobs=2)

"""


@pytest.mark.parametrize(
    ("lines", "guarded"),
    [
        ('if __name__ == "__main__":\n    ask()', True),
        ("if '__main__' == __name__:\n    x = 1\n    ask()", True),
        ("ask()", False),
        ('if __name__ != "__main__":\n    pass\nelse:\n    ask()', False),
        ('if __name__ == "__main__":\n    pass\nask()', False),
    ],
)
def test_a_guard_is_seen(tmp_path, monkeypatch, lines, guarded):
    """A script in the place of this process's own."""
    path = tmp_path / "script.py"
    path.write_text(lines)
    main = types.ModuleType("__main__")
    found = []
    vars(main).update(__file__=str(path), ask=lambda: found.append(script_is_guarded()))
    monkeypatch.setitem(sys.modules, "__main__", main)
    exec(compile(lines, path, "exec"), vars(main))
    assert found == [guarded]


def test_without_a_script_there_is_nothing_to_guard(monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    assert script_is_guarded()


@pytest.mark.parametrize(
    ("end", "player"),
    [('if __name__ == "__main__":\n    main()\n', "child"), ("main()\n", "parent")],
    ids=["guarded", "unguarded"],
)
def test_auto_starts_processes_only_from_guarded_scripts(tmp_path, end, player):
    (tmp_path / "script.py").write_text(MAIN + end)
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # Where a run takes long, its beginning is played aside as well, here, to tell how long.
    assert set(done.stdout.split()) - {"parent"} == {player} - {"parent"}


def test_what_cannot_be_sent_is_played_here(tmp_path):
    """A class typed in, as in a notebook: no other process could find it."""
    done = subprocess.run(
        [sys.executable, "-c", MAIN + "main()"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    # Twice on a slow machine: see above.
    assert set(done.stdout.split()) == {"parent"}


def test_python_and_the_command_line_have_one_default():
    import inspect

    from restless_bandits.cli import simulate as command

    defaults = {inspect.signature(function).parameters["engine"].default for function in (simulate, command.simulate)}
    assert defaults == {"auto"}
    assert rb.simulate is simulate
