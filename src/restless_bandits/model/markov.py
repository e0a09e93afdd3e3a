"""Finite Markov chains: powers, limits, eigenvalues, mixing, and the facts about birth-death chains.

A chain is a row-stochastic matrix ``P`` with ``P[j, k] = Pr(next = k | now = j)``. The state τ slots after ``s`` has
the distribution ``P^τ[s]``. Distances between distributions are total variation unless a name says otherwise.

Birth-death chains move by at most one state. The eigenvalues of such a chain other than 1 are those of its
*edge matrix*: with ``up_k = P[k, k+1]``, ``down_k = P[k, k-1]`` and f an eigenvector, the differences
``f(k) - f(k+1)`` satisfy

    λ d_k = down_k d_{k-1} + (1 - up_k - down_{k+1}) d_k + up_{k+1} d_{k+1},

a matrix smaller by one dimension. Its transpose is a birth-death chain on the edges, killed at both ends. The edge
matrix gives bounds of the paper's λ_max, a supremum of eigenvalues over a box of matrices.
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from restless_bandits._internal.blocks import last_sums
from restless_bandits._internal.validation import Array, BoolArray, IntArray


def powers(P: Array, length: int) -> Array:
    """Return the stack ``[I, P, P², …, P^length]``; ``powers(P, L)[τ][s]`` is the distribution τ slots after s.

    Rows are normalized after each product: otherwise their rounding errors would grow with τ.
    """
    stack = np.empty((length + 1, *P.shape))
    stack[0] = np.eye(P.shape[0])
    if length:
        stack[1] = P
        have = 1
        while have < length:
            more = min(have, length - have)
            stack[have + 1 : have + more + 1] = _stochastic(stack[1 : more + 1] @ stack[have])
            have += more
    return stack


def power(P: Array, exponent: int) -> Array:
    """Return P to a power of any size, by squaring, with rows normalized after each product: see ``powers``."""
    found, square = np.eye(P.shape[0]), P
    while exponent:
        if exponent & 1:
            found = _stochastic(found @ square)
        exponent >>= 1
        if exponent:
            square = _stochastic(square @ square)
    return found


def _stochastic(matrices: Array) -> Array:
    return np.asarray(matrices / matrices.sum(axis=-1, keepdims=True))


def reachable(steps: BoolArray) -> BoolArray:
    """Return which states lead to which in any number of steps, zero included, for each matrix of a stack."""
    reach: BoolArray = steps | np.eye(steps.shape[-1], dtype=bool)
    for _ in range((steps.shape[-1] - 1).bit_length()):
        reach = np.asarray(reach @ reach)
    return reach


def recurrent_classes(P: Array) -> list[IntArray]:
    """Return the closed communicating classes, each as a sorted array of states."""
    reach = reachable(P > 0)
    members = [np.flatnonzero(row) for row in reach]
    # In a closed class all reachable states lead back; the first state identifies the class.
    return [there for j, there in enumerate(members) if there[0] == j and reach[there, j].all()]


def period(P: Array, members: IntArray) -> int:
    """Return the period of a closed class: the greatest common divisor of its cycle lengths."""
    level = {int(members[0]): 0}
    queue = [int(members[0])]
    divisor = 0
    for j in queue:
        for k in np.flatnonzero(P[j] > 0).tolist():
            if k in level:
                divisor = math.gcd(divisor, level[j] + 1 - level[k])
            else:
                level[k] = level[j] + 1
                queue.append(k)
    return abs(divisor)


def is_ergodic(P: Array) -> bool:
    """Whether the chain has a single recurrent class, and an aperiodic one; transient states are allowed.

    Then ``P^τ`` converges to a matrix with equal rows, and an arm without observations forgets its state.
    """
    classes = recurrent_classes(P)
    return len(classes) == 1 and period(P, classes[0]) == 1


def are_regular(chains: Array) -> BoolArray:
    """Whether each chain of a stack is irreducible and has a state with a self-transition, and is therefore ergodic."""
    return np.asarray(reachable(chains > 0).all(axis=(1, 2)) & (np.diagonal(chains, axis1=1, axis2=2) > 0).any(axis=1))


def irreducible_laws(chains: Array) -> Array:
    """Stationary distribution of an irreducible chain, or of each chain of a stack, by GTH elimination without
    subtractions.
    """
    work = chains.copy()
    n = work.shape[-1]
    for last in range(n - 1, 0, -1):
        work[..., :last, last] /= last_sums(work[..., last, :last])[..., None]
        work[..., :last, :last] += work[..., :last, last, None] * work[..., last, None, :last]
    distribution = np.zeros(work.shape[:-1])
    distribution[..., 0] = 1.0
    for k in range(1, n):
        distribution[..., k] = (distribution[..., None, :k] @ work[..., :k, k, None])[..., 0, 0]
        # Chances may differ by hundreds of orders of magnitude; only their ratios count.
        distribution /= distribution.max(axis=-1, keepdims=True)
    distribution /= last_sums(distribution)[..., None]
    return distribution


def limit_laws(P: Array) -> Array:
    """Return the matrix whose row s is the long-run share of time in each state, starting from s.

    For an ergodic chain every row is the stationary distribution; with several recurrent classes the rows differ.
    """
    n = P.shape[0]
    classes = recurrent_classes(P)
    limit = np.zeros((n, n))
    recurrent = np.concatenate(classes)
    transient = np.setdiff1d(np.arange(n), recurrent)
    stay = P[np.ix_(transient, transient)]
    enter = np.stack([P[np.ix_(transient, members)].sum(axis=1) for members in classes], axis=1)
    # A single class is reached for sure.
    absorbed = first_steps(stay, enter, enter) if len(classes) > 1 else np.ones((transient.size, 1))
    for members, share in zip(classes, absorbed.T, strict=True):
        distribution = np.zeros(n)
        distribution[members] = irreducible_laws(P[np.ix_(members, members)])
        limit[members] = distribution
        limit[transient] += np.outer(share, distribution)
    return limit


def first_steps(stay: Array, leave: Array, right: Array) -> Array:
    """Solve x = right + stay @ x by an elimination without subtractions, column by column of ``right``.

    The rows of ``stay`` and ``leave`` together are distributions. The difference 1 − stay would lose an exit
    probability of 1e-17. The entries of ``right`` are at least zero. Values of a state that is never left, and values
    beyond the largest double, are infinite.
    """
    with np.errstate(over="ignore"):
        return _first_steps(stay, leave, right)


def _first_steps(stay: Array, leave: Array, right: Array) -> Array:
    size = len(stay)
    work, values = np.hstack([stay, leave]), right.astype(np.float64)
    for last in range(size - 1, -1, -1):
        work[last, last:size] = 0.0
        out = work[last].sum()
        if out == 0.0:
            values[last] = np.where(values[last] > 0, np.inf, 0.0)
            continue
        work[last] /= out
        values[last] /= out
        reaches = work[:last, last] > 0
        values[:last][reaches] += np.outer(work[:last, last], values[last])[reaches]
        work[:last] += np.outer(work[:last, last], work[last])
    for k in range(size):
        reached = np.flatnonzero(work[k, :k])
        values[k] += work[k, reached] @ values[reached]
    return values


def stationary(P: Array) -> Array:
    """Return the stationary distribution.

    A chain with several recurrent classes has many; the result is the limit from the uniform distribution.
    """
    return np.asarray(limit_laws(P).mean(axis=0))


def thresholds(distributions: Array) -> Array:
    """Return cumulative sums along the last axis: a draw u from [0, 1) maps to the state numbered by the count of sums
    ≤ u.

    Sums are infinite from the last possible state on: a total rounded to less than 1 would let draws pass.
    """
    possible = distributions > 0
    later: IntArray = np.cumsum(possible[..., ::-1], axis=-1)[..., ::-1] - possible
    return np.where(later > 0, np.cumsum(distributions, axis=-1), np.inf)


def second_eigenvalue(P: Array) -> float:
    """Return the eigenvalue of second largest modulus: signed if real, its modulus if complex."""
    if P.shape[0] == 1:
        return 0.0
    if P.shape[0] == 2:
        return float(P[0, 0] - P[1, 0])
    values = np.linalg.eigvals(P)
    values = values[np.argsort(-np.abs(values), kind="stable")]
    # Rounding may change the order; the trivial eigenvalue of an ergodic chain is the eigenvalue nearest to 1.
    trivial = int(np.argmin(np.abs(values - 1.0))) if is_ergodic(P) else 0
    second = np.delete(values, trivial)[0]
    is_real = abs(second.imag) <= 1e-12 * max(1.0, abs(second))
    return float(second.real if is_real else abs(second))


def distances(stack: Array, distribution: Array) -> Array:
    """Return, for each matrix of a stack of powers, the largest total variation between a row and a distribution."""
    return np.asarray(0.5 * np.abs(stack - distribution).sum(axis=-1).max(axis=-1))


def mixing_time(P: Array, epsilon: float) -> int | None:
    """Return the first τ ≥ 1 from which every row of P^τ is within ``epsilon`` of the stationary distribution in L1
    norm.

    ``None`` if no τ qualifies: periodic chains and chains with several recurrent classes. The textbook mixing time, a
    quarter in total variation, is ``epsilon=0.5``.
    """
    if not is_ergodic(P):
        return None
    return int(mixing_times(P[None], stationary(P)[None], epsilon)[0]) or None


def mixing_times(chains: Array, distributions: Array, epsilon: float) -> IntArray:
    """Return the ``mixing_time`` of each chain of an ergodic stack with given stationary distributions, 0 for None."""

    def unmixed(matrices: Array, which: IntArray) -> BoolArray:
        return np.asarray(~(2 * distances(matrices, distributions[which, None]) <= epsilon))

    last_unmixed, matrix = np.zeros(len(chains), dtype=np.int64), chains.copy()
    which = np.arange(len(chains))
    which = which[unmixed(chains, which)]
    square = chains[which]
    squares: list[tuple[IntArray, Array]] = []
    while which.size and len(squares) < 40:  # nobody waits for longer than 2^40 slots
        squares.append((which, square))
        square = _stochastic(square @ square)
        still = unmixed(square, which)
        which, square = which[still], square[still]
    never = which
    # The distance never increases with τ: a binary search over the bits of τ finds the first τ.
    for bit in range(len(squares) - 1, -1, -1):
        which, square = squares[bit]
        further = np.where((last_unmixed[which] > 0)[:, None, None], _stochastic(matrix[which] @ square), square)
        still = unmixed(further, which)
        which = which[still]
        matrix[which], last_unmixed[which] = further[still], last_unmixed[which] + (1 << bit)
    times = last_unmixed + 1
    times[never] = 0
    return times


def is_birth_death(P: Array) -> bool:
    """Whether the chain moves by at most one state."""
    return not np.any(np.triu(P, 2)) and not np.any(np.tril(P, -2))


def dominates(better: Array, worse: Array, tolerance: float = 1e-12) -> bool:
    """Whether each distribution in ``better`` is at least as good as its partner: more mass on every set of best
    states.
    """
    return bool(np.all(np.cumsum(better, axis=-1) >= np.cumsum(worse, axis=-1) - tolerance))


def neighbour_eigenvalue_bounds(P: Array, distance: float) -> tuple[float, float]:
    """Bracket the paper's λ^i, the supremum of |λ₂| over birth-death chains near ``P``.

    The neighbour space holds every birth-death chain whose entries differ from those of ``P`` by at most
    ``distance``. For two states the answer is ``|λ| + 2·distance``, attained, and both bounds are equal.

    For more states the lower bound is the best chain found by a search over the space. The upper bound is proved.
    Without the box on the diagonal, the choice of ``(up_k, down_{k+1})`` is free for each edge k. For any positive x
    every non-trivial eigenvalue of every chain of the space is at most

        max_k max_{up, down} (|1 - up - down| x_k + up x_{k-1} + down x_{k+1}) / x_k

    in modulus (Collatz and Wielandt, on the transposed edge matrix). Iterating the map makes x nearly optimal.
    """
    if not is_birth_death(P):
        raise ValueError("the neighbour space is defined for birth-death chains")
    n = P.shape[0]
    if n == 1:
        return 0.0, 0.0
    moves = np.diagonal(P, 1), np.diagonal(P, -1)
    box_up, box_down = (np.clip([move - distance, move + distance], 0.0, 1.0) for move in moves)
    if n == 2:
        value = float(np.abs(1.0 - box_up - box_down).max())
        return value, value
    upper, choice = _robust_edge_radius(box_up, box_down)
    return _search_neighbours(P, distance, choice), min(1.0, upper)


def _robust_edge_radius(box_up: Array, box_down: Array) -> tuple[float, tuple[Array, Array]]:
    """Upper bound for the edge matrices of a box, and the corner chosen for every edge."""
    ups, downs = box_up[[0, 0, 1, 1]], box_down[[0, 1, 0, 1]]
    x = np.ones(box_up.shape[1])
    best = math.inf
    corner = np.zeros(x.size, dtype=np.int64)
    for _ in range(10_000):
        left = np.concatenate([[0.0], x[:-1]])
        right = np.concatenate([x[1:], [0.0]])
        image = np.abs(1.0 - ups - downs) * x + ups * left + downs * right
        corner = image.argmax(axis=0)
        image = image.max(axis=0)
        ratio = image / x
        best = min(best, float(ratio.max()))
        if ratio.max() - ratio.min() <= 1e-13:
            break
        # Averaging with the last x keeps the iteration from oscillating and x positive.
        x = 0.5 * (x / x.max() + image / image.max())
    edge = np.arange(x.size)
    return best, (ups[corner, edge], downs[corner, edge])


def _search_neighbours(P: Array, distance: float, choice: tuple[Array, Array]) -> float:
    """Best |λ₂| found in the neighbour space: coordinate search from P and from the relaxed maximiser."""
    n = P.shape[0]
    moves = np.concatenate([np.diagonal(P, 1), np.diagonal(P, -1)])
    low: Array = np.maximum(0, moves - distance)
    high = moves + distance
    exits = 1.0 - np.diagonal(P)

    def repaired(candidate: Array) -> Array:
        """Pull a candidate into the space: boxes first, then the exits of each state back to their own box."""
        boxed = np.clip(candidate, low, high)
        out_up, out_down = np.append(boxed[: n - 1], 0.0), np.insert(boxed[n - 1 :], 0, 0.0)
        excess = np.maximum(0, out_up + out_down - np.minimum(1.0, exits + distance))
        lack = np.maximum(0, exits - distance - out_up - out_down)
        both = np.maximum(out_up + out_down, 1e-300)
        more = lack - excess
        out_up, out_down = out_up + more * out_up / both, out_down + more * out_down / both
        moved: Array = np.concatenate([out_up[:-1], out_down[1:]])
        return np.clip(moved, low, high)

    def value(candidate: Array) -> float:
        matrix = np.diag(candidate[: n - 1], 1) + np.diag(candidate[n - 1 :], -1)
        matrix += np.diag(1.0 - matrix.sum(axis=1))
        inside = np.abs(np.diagonal(matrix) - np.diagonal(P)) <= distance + 1e-12
        if not inside.all() or matrix.min() < -1e-12:
            return -math.inf
        return abs(second_eigenvalue(matrix))

    best = value(moves)
    for start in (moves, repaired(np.concatenate(choice))):
        here, here_value = start, value(start)
        step = distance
        while step > distance * 1e-4:
            improved = False
            for unit, move in itertools.product(np.eye(here.size), (-step, step)):
                trial = repaired(here + move * unit)
                trial_value = value(trial)
                if trial_value > here_value + 1e-13:
                    here, here_value, improved = trial, trial_value, True
            if not improved:
                step /= 4
        best = max(best, here_value)
    return best
