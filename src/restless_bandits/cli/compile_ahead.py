"""A second process that compiles in parallel, so that the first simulation starts after half the time.

Learners plan before slots are played. The kernel of the slots can therefore be compiled meanwhile, and is loaded from
disk when needed. A process is used because Numba compiles in one thread at a time. If the process fails, the first
process compiles the kernel itself.
"""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
from functools import cache
from typing import Any, cast

COMPILATION_TIMEOUT_SECONDS = 60.0
"""Seconds of waiting for the other process."""
PLAY_A_SLOT = "from restless_bandits.cli.compile_ahead import play_a_slot; play_a_slot()"


@cache
def compile_slots_ahead() -> None:
    """Start the process, unless the kernel is in the cache on disk, or cannot be put there."""
    from restless_bandits._internal.compiling import Kernel, compiling_ahead, is_kept
    from restless_bandits.simulation.pools import cores
    from restless_bandits.simulation.world_kernels import run_plan

    kernel = cast(Kernel, run_plan)
    # Without a writable cache folder the processes cannot share compiled kernels.
    if cores() == 1 or kernel.stats.cache_path is None or is_kept(kernel):
        return
    with contextlib.suppress(OSError):
        # The current folder is not on the import path: its modules do not belong to the package.
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", PLAY_A_SLOT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(process.kill)
        compile_after(process, kernel.dispatcher)
        compiling_ahead.set()


def compile_after(process: subprocess.Popen[bytes], kernel: Any) -> None:
    """Make a kernel that a process compiles wait for the process, and then look on disk."""
    compile_or_load = kernel.compile

    def wait(signature: Any) -> Any:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(COMPILATION_TIMEOUT_SECONDS)
        return compile_or_load(signature)

    kernel.compile = wait


def play_a_slot() -> None:
    """Play one slot by a learner that plans without a kernel."""
    import numpy as np

    from restless_bandits.learning.learners import learner
    from restless_bandits.model.problem import Problem
    from restless_bandits.simulation.engine import World, play_run

    play_run(learner("round-robin"), World(Problem.builtin("paper-1")), 1, np.array([1]), seed=0, run=0)
