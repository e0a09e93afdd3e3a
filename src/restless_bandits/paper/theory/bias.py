"""The bias between successors, Lemma 16 and Appendix B of the paper (Wang, Huang, Lui 2020).

After a pull the next joint belief is one of M beliefs, different in the observed state. By Appendix B the bias of the
optimal policy differs between them by at most U = 2M/(1 − λ_max), and not by a diameter that is exponential in the
problem. The regret bounds O(U√T) of colored-UCRL2 and Thompson sampling are therefore polynomial as well. The exact
oracle has the bias over all beliefs; ``bias_between_successors`` computes U from the bias.

Proved for two states: the distribution of an unobserved state, from any start, lies between the rows of P. After a pull
the two lines of a coupling therefore agree except with probability |λ|, and U ≤ |λ|(1 + U), U ≤ |λ|/(1 − |λ|): less
than a quarter of the paper's bound. For more states see Lemma 5 of docs/theory/likelihood-dominance.md.

Differs from the paper: its proof sums over slots the differences between distributions of an unobserved arm. The
policy, however, pulls the arm at times that depend on observations. The proof also uses the inequality of Lemma 13,
which is false (see ``perturbation``). No counterexample to the statement is known to us.
"""

from __future__ import annotations

import math

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.validation import Array
from restless_bandits.model.neighbours import lambda_max
from restless_bandits.model.problem import Problem
from restless_bandits.model.reward_units import difference_of
from restless_bandits.model.support import refuse_unsupported
from restless_bandits.oracles.explicit_chains import MOST_BELIEFS, TooLargeError, chain_bias, explore
from restless_bandits.oracles.solution import Solution
from restless_bandits.policies.policies import JointPolicy, Policy
from restless_bandits.processes.beliefs import joint_beliefs, truncation_for

__all__ = ["bias_between_successors", "bias_bound", "policy_bias_span"]


def bias_between_successors(solution: Solution) -> float:
    """Return U: the largest difference of an exact solution's bias between the outcomes of a pull."""
    bias = solution.bias
    if bias is None or not isinstance(solution.policy, JointPolicy):
        raise ProblemError(f"the {solution.oracle} solution has no bias function; solve with the exact oracle")
    beliefs = solution.policy.beliefs
    if beliefs.plays != 1:
        raise ProblemError(f"plays is {beliefs.plays}; Appendix B is about one pull a slot")
    widest = 0.0
    for block, (arm,) in enumerate(beliefs.actions):
        # A block holds the beliefs after a pull of one arm, whose digit is the observed state. Beliefs with another arm
        # observed in the same slot do not occur: other arms have had a slot without a pull.
        part = bias[beliefs.offsets[block] : beliefs.offsets[block + 1]]
        table: Array = part.reshape(beliefs.radix[block, beliefs.order])
        met = [
            np.arange(beliefs.arms[i].n_states) if i == arm else np.unique(beliefs.arms[i].passive)
            for i in beliefs.order
        ]
        axis = int(np.flatnonzero(beliefs.order == arm)[0])
        widest = max(widest, float(np.ptp(table[np.ix_(*met)], axis=axis).max()))
    return difference_of(solution.problem, widest)


def bias_bound(problem: Problem) -> float:
    """2M/(1 − λ_max), with the attained end of λ_max; infinite if λ_max is 1 or undefined.

    In widths of the range of rewards.
    """
    rate = lambda_max(problem)
    bound = math.inf if rate is None or rate >= 1 else 2 * max(problem.n_states) / (1 - rate)
    return difference_of(problem, bound)


def policy_bias_span(problem: Problem, policy: Policy, *, most: int = MOST_BELIEFS) -> float:
    """Return the span of a policy's bias over all joint beliefs reachable from the start.

    Theorem 2 needs the span for the approximate policy in R'; the paper's bound is a diameter, called "probably
    exponential" there. Infinite if the policy may end in different recurrent classes. ``ProblemError`` if the policy
    can reach more than ``most`` joint beliefs.
    """
    problem.require_steady("the bias of a policy")
    refuse_unsupported(problem, "theory")
    joint = joint_beliefs(problem.normalized(), [truncation_for(arm, 1e-9) for arm in problem.arms], forget=False)
    try:
        explored = explore(joint, policy, most)
    except TooLargeError:
        raise ProblemError(f"the policy can reach more than {most} joint beliefs, too many for its bias") from None
    bias = chain_bias(explored)
    return math.inf if bias is None else difference_of(problem, float(np.ptp(bias)))
