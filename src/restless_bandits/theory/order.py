"""The order ≽ on laws and on chains, Definition 3 and Lemmas 3 to 7 of the paper (Wang, Huang, Lui 2020, Appendix A.1).

v ≽ v' if v has at least as much mass on every set of best states: every running sum is at least as large. It is the
first-order stochastic order, best state first. Margins say by how much: the least difference of running sums, the last
one left out because it is always 1. A margin of zero or more is the order itself.

Which lemma needs what: P' ≽ P row by row (Lemma 3) needs the event E, and so does vP' ≽ vP (Lemma 5). Rows of P in
order (Lemma 4), and v ≽ v' ⇒ vP ≽ v'P (Lemma 6), need Assumption 3. Powers, vP'^τ ≽ v'P^τ (Lemma 7), need both, and
from τ = 2 on Assumption 3 cannot be done without. P' need not meet it: vP'^τ ≽ vP'^(τ−1)P by Lemma 5, and then P alone
works on laws that are in order by induction.
"""

from __future__ import annotations

import numpy as np

from restless_bandits import markov
from restless_bandits.arrays import Array
from restless_bandits.markov import dominates

__all__ = ["dominance_margin", "dominates", "monotone_margin", "power_margins"]


def dominance_margin(better: Array, worse: Array) -> float:
    """Return the least difference of running sums, over all rows; dominance is a margin of zero or more.

    >>> dominance_margin(np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.3])).__round__(12)
    0.1
    """
    differences = np.cumsum(np.asarray(better) - worse, axis=-1)[..., :-1]
    return float(differences.min(initial=np.inf)) if differences.size else 0.0


def monotone_margin(chain: Array) -> float:
    """Return the margin of Lemma 4: of each row over the next; at least zero iff better states lead to better ones.

    For a birth-death chain it is negative where Assumption 3 fails, and by as much: 1 − max_k (P(k,k+1) + P(k+1,k)).
    """
    return dominance_margin(chain[:-1], chain[1:])


def power_margins(better: Array, worse: Array, length: int) -> Array:
    """Return the margin of each row of P'^τ over that of P^τ, for τ = 0..length: Lemma 7 says that none is negative."""
    pairs = zip(markov.powers(better, length), markov.powers(worse, length), strict=True)
    return np.array([dominance_margin(more, less) for more, less in pairs])
