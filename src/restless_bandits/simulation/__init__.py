"""Simulation: many learners, many runs, all cores; results with labels.

result = rb.simulate(problem, ["restless-ucb", "round-robin"], horizon=50_000, runs=200, seed=0)
result.regret()                             # (learner, run, checkpoint), of the least noisy kind there is
"""

from __future__ import annotations

from restless_bandits.simulation.comparator import Comparator
from restless_bandits.simulation.pools import Pool, ProcessPool, ThreadPool
from restless_bandits.simulation.results import SimulationResult
from restless_bandits.simulation.runner import SimulationInterrupted, simulate

__all__ = ["Comparator", "Pool", "ProcessPool", "SimulationInterrupted", "SimulationResult", "ThreadPool", "simulate"]
