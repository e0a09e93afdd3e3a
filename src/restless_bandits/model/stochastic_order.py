"""The order ≽ of distributions and chains, Definition 3 and Lemmas 3 to 7 of the paper (Wang, Huang, Lui 2020, App.
A.1).

v ≽ v' if v has at least as much mass on every set of best states: every cumulative sum is at least as large. The order
is first-order stochastic dominance, best state first. A margin is the least difference of cumulative sums, without the
last sum, which is always 1. The order holds for a margin of zero or more.

Assumptions of the lemmas: P' ≽ P row by row (Lemma 3) needs the event E, and so does vP' ≽ vP (Lemma 5). Rows of P in
order (Lemma 4), and v ≽ v' ⇒ vP ≽ v'P (Lemma 6), need Assumption 3. Powers, vP'^τ ≽ v'P^τ (Lemma 7), need both, and
Assumption 3 is necessary from τ = 2 on. P' need not satisfy Assumption 3: vP'^τ ≽ vP'^(τ−1)P by Lemma 5, and then only
P acts on distributions in order by induction.
"""

from __future__ import annotations

import numpy as np

from restless_bandits._internal.validation import Array
from restless_bandits.model import markov
from restless_bandits.model.markov import dominates

__all__ = ["dominance_margin", "dominates", "monotone_margin", "power_margins"]


def dominance_margin(better: Array, worse: Array) -> float:
    """Return the least difference of running sums, over all rows; dominance is a margin of zero or more.

    >>> dominance_margin(np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.3])).__round__(12)
    0.1
    """
    differences = np.cumsum(np.asarray(better) - worse, axis=-1)[..., :-1]
    return float(differences.min(initial=np.inf)) if differences.size else 0.0


def monotone_margin(chain: Array) -> float:
    """Return the margin of Lemma 4, of each row over the next; at least zero iff better states lead to better states.

    For a birth-death chain the margin is 1 − max_k (P(k,k+1) + P(k+1,k)) if negative, which means a violation of
    Assumption 3 by the same amount.
    """
    return dominance_margin(chain[:-1], chain[1:])


def power_margins(better: Array, worse: Array, length: int) -> Array:
    """Return the margin of each row of P'^τ over the row of P^τ, for τ = 0..length: by Lemma 7 none is negative."""
    pairs = zip(markov.powers(better, length), markov.powers(worse, length), strict=True)
    return np.array([dominance_margin(more, less) for more, less in pairs])
