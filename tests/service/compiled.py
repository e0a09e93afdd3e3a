"""Loaded into the process that others are forked from: kernels are there before the first plan is asked for."""

from restless_bandits.agent.core import AgentCore
from restless_bandits.model.tasks import Task

_player = AgentCore("likelihood-ucb", Task((2, 2, 2), 1, ("bernoulli",) * 3, (None,) * 3, ("x", "y", "z")))
for _slot in range(40):
    _player.ask()
    _player.tell(_slot // 2 % 2, 1.0)
