"""A second process that compiles while the first one does, so that a first simulation is waited for half as long.

Learners plan before slots are played, so the kernel of the slots can be made meanwhile, and is taken from disk when its
turn comes. In a process, because Numba compiles in one thread at a time. Should it fail, the first process compiles
that kernel itself, as it would alone.
"""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
import threading
from functools import cache
from typing import Any, cast

PATIENCE = 60.0
"""Seconds after which the other process is not waited for any longer."""
PLAY_A_SLOT = "from restless_bandits.cli.ahead import play_a_slot; play_a_slot()"


@cache
def compile_slots_ahead() -> None:
    """Start that process as soon as this one, or one that plays for it, finds a kernel that is not kept on disk."""
    from restless_bandits._compile import Kernel, compiling
    from restless_bandits.simulation._kernels import run_plan
    from restless_bandits.simulation.pools import cores

    if cores() == 1 or compiling.is_set():
        return
    kernel = cast(Kernel, run_plan)
    # Here and not in the thread, which would wait for the lock that this process holds while it compiles.
    if kernel.stats.cache_path is None:
        # No folder can be written, through which the two would share it.
        return

    def start() -> None:
        compiling.wait()
        with contextlib.suppress(OSError):
            # Without the present folder among those to import from: what lies there is none of ours.
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", PLAY_A_SLOT],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            atexit.register(process.kill)
            _compile_after(process, kernel.dispatcher)

    threading.Thread(target=start, daemon=True).start()


def _compile_after(process: subprocess.Popen[bytes], kernel: Any) -> None:
    """Let a kernel that is needed while a process makes it wait for that, and look on disk then."""
    compile_or_load = kernel.compile

    def wait(signature: Any) -> Any:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
        return compile_or_load(signature)

    kernel.compile = wait


def play_a_slot() -> None:
    """Play one slot by a learner that takes no kernel to plan."""
    import numpy as np

    from restless_bandits.learners import learner
    from restless_bandits.problem import Problem
    from restless_bandits.simulation.engine import World, play_run

    play_run(learner("round-robin"), World(Problem.builtin("paper-1")), 1, np.array([1]), seed=0, run=0)
