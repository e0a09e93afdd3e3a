"""What is known of an arm, as a finite process with two actions: action 0 rests, action 1 pulls.

``hidden_process`` in ``beliefs`` makes the process of an arm that is seen when pulled, and ``observed_process`` the
process of an arm that is always seen. Oracles read processes; no other code turns chains into what is known.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from restless_bandits._internal.validation import Array, IntArray
from restless_bandits.model.arms import Arm


@dataclass(frozen=True)
class ArmProcess:
    """A finite process: nodes, what each action pays there, and the next nodes with their probabilities."""

    reward: Array
    """``[node, action]``: the mean reward of a slot."""
    indptr: IntArray
    """Row ``2 * node + action`` of the next nodes is ``indptr[row]`` to ``indptr[row + 1]``."""
    target: IntArray
    """The next nodes of all rows."""
    prob: Array
    """The probabilities of the next nodes."""
    tv_error: Array
    """``[node, action]``: a bound of the total variation lost by truncation; 0 where the process is exact."""
    after_pull: IntArray
    """The nodes that are possible right after a pull."""
    start: Array
    """The distribution of the node in slot 1."""
    deterministic_rest: bool
    """Whether resting leads from each node to a single node."""

    @property
    def size(self) -> int:
        """The number of nodes."""
        return len(self.reward)

    def matrix(self, action: int) -> Array:
        """Return the transition probabilities of an action as a dense matrix."""
        found = np.zeros((self.size, self.size))
        counts = np.diff(self.indptr)
        row = np.repeat(np.arange(2 * self.size), counts)
        mine = row % 2 == action
        np.add.at(found, (row[mine] // 2, self.target[mine]), self.prob[mine])
        return found


def observed_process(arm: Arm) -> ArmProcess:
    """Return the process of an arm whose state is seen before every choice: a node for each state.

    With a set-up cost the nodes ``n_states + state`` follow a slot with a pull, and ``state`` a slot without.
    """
    n, copies = arm.n_states, 2 if arm.setup_cost else 1
    size = copies * n
    chains = np.stack([arm.chain, arm.active_chain], axis=1)
    states = np.arange(n)
    target = np.empty((size, 2, n), dtype=np.int64)
    target[:, 0], target[:, 1] = states, states + (size - n)
    reward = np.tile(arm.mean_rewards, (copies, 1))
    reward[:n, 1] -= arm.setup_cost
    start = np.zeros(size)
    start[:n] = arm.initial_distribution @ arm.chain
    return ArmProcess(
        reward=reward,
        indptr=np.arange(0, 2 * size * n + 1, n),
        target=target.reshape(-1),
        prob=np.tile(chains, (copies, 1, 1)).reshape(-1),
        tv_error=np.zeros((size, 2)),
        after_pull=states + (size - n),
        start=start,
        deterministic_rest=bool(((arm.chain > 0).sum(axis=1) == 1).all()),
    )
