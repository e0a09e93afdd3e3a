"""Loaded into the process that others are forked from: kernels are there before the first plan is asked for."""

from restless_bandits.player import Player
from restless_bandits.problem import Task

_player = Player("likelihood-ucb", Task((2, 2, 2), 1, ("bernoulli",) * 3, (None,) * 3, ("x", "y", "z")))
for _slot in range(40):
    _player.ask()
    _player.tell(_slot // 2 % 2, 1.0)
