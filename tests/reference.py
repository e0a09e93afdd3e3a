"""Slow, plain implementations to hold the package against. They share no code with what they test."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction

import numpy as np


def subsidised_advantage(laws, rewards, subsidy, discount=1 - 1e-6):
    """Advantage of pulling over resting in every belief (s, τ) of one arm, by policy iteration on all of them.

    ``laws[τ - 1][s]``; waiting at the last τ leads back to it. Dense linear systems, discounted.
    """
    length, n, _ = laws.shape
    states = [(s, t) for s in range(n) for t in range(length)]
    number = {state: i for i, state in enumerate(states)}
    pull = np.zeros((len(states), len(states)))
    rest = np.zeros_like(pull)
    pay = np.zeros(len(states))
    for (s, t), i in number.items():
        pay[i] = laws[t, s] @ rewards
        rest[i, number[s, min(t + 1, length - 1)]] = 1.0
        for k in range(n):
            pull[i, number[k, 0]] += laws[t, s, k]
    active = np.ones(len(states), dtype=bool)
    for _ in range(1000):
        matrix = np.where(active[:, None], pull, rest)
        value = np.linalg.solve(np.eye(len(states)) - discount * matrix, np.where(active, pay, subsidy))
        advantage = (pay + discount * pull @ value) - (subsidy + discount * rest @ value)
        better = np.where(active, advantage < -1e-9, advantage > 1e-9)
        if not better.any():
            return advantage.reshape(n, length)
        active = active ^ better
    raise AssertionError("policy iteration did not settle")


def subsidised_dual(laws, rewards, unseen, subsidy):
    """One arm that may rest for a subsidy: best average, share of slots at rest, advantage of pulling in each belief.

    ``laws[τ - 1][s]`` and ``unseen[τ - 1]`` for an arm never seen. Policy iteration over the slots to wait after each
    state, in NumPy; the last number is how much better than its own values the policy could still be.
    """
    length, n, _ = laws.shape
    states, slots, means = np.arange(n), np.arange(length)[:, None], laws @ rewards
    waits = np.zeros(n, dtype=int)
    while True:
        system = np.eye(n) - laws[waits, states]
        system[:, -1] = waits + 1.0
        solved = np.linalg.solve(system, np.column_stack([means[waits, states] + subsidy * waits, waits]))
        gain, rest = solved[-1]
        h = np.append(solved[:-1, 0], 0.0)
        values = means + laws @ h + subsidy * slots - gain * (slots + 1)
        better = values.max(axis=0) > h + 1e-12 * (1 + np.abs(h))
        if not better.any():
            break
        waits = np.where(better, values.argmax(axis=0), waits)
    stops = gain <= subsidy
    if stops:
        gain, rest, h, waits = subsidy, 1.0, np.zeros(n), np.full(n, -1)
        while True:
            values = means - subsidy + laws @ h
            better = values.max(axis=0) > h + 1e-12 * (1 + np.abs(h))
            if not better.any():
                break
            waits = np.where(better, values.argmax(axis=0), waits)
            pulls = waits >= 0
            system = np.eye(n) - laws[waits, states] * pulls[:, None]
            h = np.linalg.solve(system, np.where(pulls, means[waits, states] - subsidy, 0.0))
    pull = np.concatenate([means - gain + laws @ h, (unseen @ rewards - gain + unseen @ h)[:, None]], axis=1)
    rested = np.empty_like(pull)
    value = np.maximum(pull[-1], 0.0) if stops else pull[-1].copy()
    for t in range(length - 1, -1, -1):
        rested[t] = subsidy - gain + value
        value = np.maximum(pull[t], rested[t]) if t < length - 1 else value
        # Never seen is a belief that is not waited in: it is pulled in the next slot, or given up.
        value[-1] = max(pull[t, -1], 0.0) if stops else pull[t, -1]
    return gain, rest, (pull - rested).T, max(0.0, (value[:-1] - h).max())


def brute_force_gain(tables, rewards, starts, plays=1, sweeps=20_000):
    """Best long-run reward from the start, arms given by tables ``laws[τ - 1][s]`` that stay put beyond their end.

    Plain lazy value iteration over dictionaries of joint beliefs ((s, τ), …); returns bounds of the gain, which is
    taken not to depend on the start.
    """
    n = len(tables)

    def options(joint):
        for action in itertools.combinations(range(n), plays):
            reward = 0.0
            for i in action:
                s, tau = joint[i]
                reward += float(tables[i][tau - 1][s] @ rewards[i])
            outcomes = []
            for seen in itertools.product(*(range(len(rewards[i])) for i in action)):
                chance = 1.0
                after = [(s, min(tau + 1, len(tables[i]))) for i, (s, tau) in enumerate(joint)]
                for i, k in zip(action, seen, strict=True):
                    s, tau = joint[i]
                    chance *= float(tables[i][tau - 1][s][k])
                    after[i] = (k, 1)
                outcomes.append((chance, tuple(after)))
            yield reward, outcomes

    start = tuple((s, 1) for s in starts)
    known, queue = {start: 0}, [start]
    for joint in queue:
        for _, outcomes in options(joint):
            for _, after in outcomes:
                if after not in known:
                    known[after] = len(known)
                    queue.append(after)
    rows = [[(r, [(c, known[after]) for c, after in o]) for r, o in options(joint)] for joint in queue]
    n_actions = len(rows[0])
    matrices = [np.zeros((len(rows), len(rows))) for _ in range(n_actions)]
    pays = np.zeros((n_actions, len(rows)))
    for i, choices in enumerate(rows):
        for a, (reward, outcomes) in enumerate(choices):
            pays[a, i] = reward
            for chance, j in outcomes:
                matrices[a][i, j] += chance
    value = np.zeros(len(rows))
    for _ in range(sweeps):
        best = np.max([pays[a] + matrices[a] @ value for a in range(n_actions)], axis=0)
        change = best - value
        if change.max() - change.min() < 1e-12:
            break
        value = value + 0.7 * change
        value -= value.min()
    return float(change.min()), float(change.max())


def rational_gain(tables, rewards, starts, plays=1):
    """Best long-run reward from the start as a fraction: all stationary policies of tables of one law for every τ.

    ``tables[i]`` is the law of arm i after each of its states, in doubles, of which rows are divided by their sums.
    """
    laws = [[[Fraction(p) / sum(map(Fraction, row)) for p in row] for row in table] for table in tables]
    means = [[Fraction(float(r)) for r in row] for row in rewards]
    actions = list(itertools.combinations(range(len(laws)), plays))
    start = tuple(starts)

    def step(joint, action):
        pay = sum(p * r for i in action for p, r in zip(laws[i][joint[i]], means[i], strict=True))
        after = {}
        for seen in itertools.product(*(range(len(means[i])) for i in action)):
            chance, there = Fraction(1), list(joint)
            for i, k in zip(action, seen, strict=True):
                chance *= laws[i][joint[i]][k]
                there[i] = k
            if chance:
                after[tuple(there)] = after.get(tuple(there), 0) + chance
        return pay, after

    known, queue = {start: 0}, [start]
    for joint in queue:
        for action in actions:
            for there in step(joint, action)[1]:
                if there not in known:
                    known[there] = len(known)
                    queue.append(there)
    options = [[step(joint, action) for action in actions] for joint in queue]
    best = None
    for policy in itertools.product(range(len(actions)), repeat=len(queue)):
        rows = [options[i][a] for i, a in enumerate(policy)]
        gain = rational_average(
            [{known[j]: p for j, p in after.items()} for _, after in rows], [pay for pay, _ in rows]
        )
        best = gain if best is None else max(best, gain)
    return best


def rational_average(rows, pays):
    """Long-run average from state 0 of a chain in fractions, ``rows[i] = {j: chance}``."""
    n = len(rows)
    reach = [{i} for i in range(n)]
    for _ in range(n):
        reach = [there.union(*(rows[j] for j in there)) for there in reach]
    gains = {}
    for i in range(n):
        if i not in gains and all(i in reach[j] for j in reach[i]):
            members = sorted(reach[i])
            # Flow in is flow out, for all members but one, and shares add up to one.
            system = [[rows[j].get(k, Fraction(0)) - (j == k) for j in members] for k in members[1:]]
            shares = rational_solve([*system, [Fraction(1)] * len(members)], [Fraction(0)] * (len(members) - 1) + [1])
            gain = sum(share * pays[j] for share, j in zip(shares, members, strict=True))
            gains |= dict.fromkeys(members, gain)
    if 0 in gains:
        return gains[0]
    transient = [i for i in range(n) if i not in gains]
    system = [[(i == j) - rows[i].get(j, Fraction(0)) for j in transient] for i in transient]
    right = [sum(p * gains[j] for j, p in rows[i].items() if j in gains) for i in transient]
    return rational_solve(system, right)[0]


def rational_solve(system, right):
    """Gauss and Jordan, in fractions."""
    rows = [[*map(Fraction, row), Fraction(last)] for row, last in zip(system, right, strict=True)]
    for k in range(len(rows)):
        pivot = next(i for i in range(k, len(rows)) if rows[i][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [entry / rows[k][k] for entry in rows[k]]
        for i, row in enumerate(rows):
            if i != k and row[k]:
                rows[i] = [entry - row[k] * other for entry, other in zip(row, rows[k], strict=True)]
    return [row[-1] for row in rows]


def simulate(problem, policy, slots, seed):
    """Mean rewards of a policy, slot by slot with every chain stepped: the slot standard, word for word."""
    rng = random.Random(seed)

    def draw(distribution):
        return rng.choices(range(len(distribution)), weights=distribution)[0]

    chains = [arm.transitions.tolist() for arm in problem.arms]
    state, last, elapsed = [], [], []
    for arm in problem.arms:
        state.append(draw(arm.stationary.tolist()) if arm.initial is None else arm.initial)
        last.append(arm.initial)
        elapsed.append(1)
    rewards = np.zeros(slots)
    known = {}
    for t in range(slots):
        state = [draw(chain[s]) for chain, s in zip(chains, state, strict=True)]
        situation = (tuple(last), tuple(min(tau, 400) for tau in elapsed))
        if situation not in known:
            chosen = policy(*situation)
            known[situation] = chosen if isinstance(chosen, tuple) else (chosen,)
        elapsed = [tau + 1 for tau in elapsed]
        for i in known[situation]:
            rewards[t] += float(problem.arms[i].rewards[state[i]])
            last[i], elapsed[i] = state[i], 1
    return rewards


class Xoshiro:
    """xoshiro256++ in plain integers, from its definition."""

    MASK = (1 << 64) - 1

    def __init__(self, words):
        self.s = [int(word) for word in words]

    def random(self):
        s = self.s

        def rotate(x, k):
            return ((x << k) | (x >> (64 - k))) & self.MASK

        result = (rotate((s[0] + s[3]) & self.MASK, 23) + s[0]) & self.MASK
        shifted = (s[1] << 17) & self.MASK
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= shifted
        s[3] = rotate(s[3], 45)
        return (result >> 11) / 2**53


class World:
    """The slot standard with the engine's draws: what is seen follows row s of P^τ, two draws a pull.

    Laws are plain matrix powers; keeps what was pulled, seen and earned, and the reward expected given the belief.
    """

    def __init__(self, problem, words):
        self.problem = problem
        self.draws = Xoshiro(words)
        self.last = list(problem.initial)
        self.elapsed = [1] * problem.n_arms
        self.history = []
        self.expected = 0.0
        self.powers = {}

    def distribution(self, arm, state, tau):
        chain = self.problem.arms[arm]
        if state is None:
            return chain.stationary
        tau = min(tau, 3000)
        if (arm, tau) not in self.powers:
            power = np.linalg.matrix_power(chain.chain, tau)
            self.powers[arm, tau] = power / power.sum(axis=1, keepdims=True)
        return self.powers[arm, tau][state]

    def pull(self, arms):
        """One slot: the states and rewards of the arms pulled."""
        states, rewards = [], []
        for i in sorted(arms):
            arm = self.problem.arms[i]
            distribution = self.distribution(i, self.last[i], self.elapsed[i])
            u, v = self.draws.random(), self.draws.random()
            total, seen = 0.0, arm.n_states - 1
            for k in range(arm.n_states - 1):
                total += distribution[k]
                if u < total:
                    seen = k
                    break
            mean = float(arm.rewards[seen])
            states.append(seen)
            low, high = arm.reward_range
            drawn = high if v * (high - low) < mean - low else low
            rewards.append(mean if arm.reward_law == "fixed" else drawn)
            self.expected += float(distribution @ arm.rewards)
        self.elapsed = [tau + 1 for tau in self.elapsed]
        for i, seen in zip(sorted(arms), states, strict=True):
            self.last[i], self.elapsed[i] = seen, 1
        self.history.append((tuple(sorted(arms)), tuple(states), tuple(rewards)))
        return states, rewards


def play_with_agent(agent, world, slots):
    """Drive an agent through a world by ask and tell."""
    for _ in range(slots):
        asked = agent.ask()
        arms = asked if isinstance(asked, tuple) else (asked,)
        states, rewards = world.pull(arms)
        if len(arms) == 1:
            agent.tell(states[0], rewards[0])
        else:
            agent.tell(states, rewards)


def log_likelihood(chain, observations):
    """Of a birth-death chain, by NumPy's matrix powers; what it cannot do is left out."""
    total = 0.0
    for elapsed, state, seen in zip(*observations, strict=True):
        distribution = np.linalg.matrix_power(chain, int(elapsed))[state]
        total += sum(n * np.log(distribution[k]) for k, n in enumerate(seen) if n and abs(k - state) <= elapsed)
    return total


def best_code(rows, levels):
    """The likeliest two-state chain after the price of its code, over all lattices: rows of (moves, stays)."""
    found = []
    for level in range(1, levels + 1):
        angles = (np.arange(2**level) + 0.5) * np.pi / 2 / 2**level
        chance = np.sin(angles) ** 2
        best = sum((moves * np.log(chance) + stays * np.log1p(-chance)).max() for moves, stays in rows)
        found.append(best - len(rows) * level * np.log(2) - np.log(levels))
    return max(found)


def log_mixture(ones, zeros, points=20_001):
    """Log of the mean of p^ones (1 − p)^zeros where p = sin² φ and φ is uniform on (0, π/2): the trapezoidal rule."""
    angles = np.linspace(0, np.pi / 2, points)
    values = np.sin(angles) ** (2 * ones) * np.cos(angles) ** (2 * zeros)
    return np.log(values.sum() - 0.5 * (values[0] + values[-1])) - np.log(points - 1)


def log_best(ones, zeros):
    """Log of the largest p^ones (1 − p)^zeros."""
    if not ones or not zeros:
        return 0.0
    p = ones / (ones + zeros)
    return ones * np.log(p) + zeros * np.log(1 - p)


def filtered_laws(chains, changes, initial, arms, states):
    """The law of each observation of a run given all before it, one slot and one step at a time.

    ``chains[arm]`` as the run begins and ``changes`` as (slot, arm, chain); ``initial`` are laws one step before
    slot 1; ``arms[t]`` and ``states[t]`` what was pulled and seen in slot t + 1.
    """
    chains, beliefs, found = list(chains), [np.array(distribution, dtype=float) for distribution in initial], []
    for slot, (arm, state) in enumerate(zip(arms, states, strict=True), start=1):
        for when, which, chain in changes:
            if when == slot:
                chains[which] = chain
        beliefs = [distribution @ chain for distribution, chain in zip(beliefs, chains, strict=True)]
        found.append(beliefs[arm].copy())
        beliefs[arm] = np.eye(len(beliefs[arm]))[state]
    return found


def reacting_gain(arms, longest, sweeps=4000):
    """The best gain of one play on reacting arms that are seen when pulled, by value iteration over joint beliefs.

    An arm is (P_active, P_passive, rewards, passive_rewards, setup_cost) as lists. A belief is (s, τ ≤ longest) of each
    arm, and a wait at ``longest`` leads back to it. Plain Python; returns the two bounds of value iteration.
    """

    def times(row, matrix):
        return [sum(p * matrix[j][k] for j, p in enumerate(row)) for k in range(len(matrix))]

    tables = []
    for active, passive, *_ in arms:
        table = {}
        for s, row in enumerate(active):
            for tau in range(1, longest + 1):
                table[s, tau] = row
                row = times(row, passive)
        tables.append(table)
    beliefs = list(itertools.product(*tables))
    reachable = [z for z in beliefs if [tau for _, tau in z].count(1) == 1]
    number = {z: i for i, z in enumerate(reachable)}
    waits = [{(s, tau): (s, min(tau + 1, longest)) for s, tau in table} for table in tables]
    choices = []
    for z in reachable:
        options = []
        for i in range(len(arms)):
            pay = sum(
                (sum(p * r for p, r in zip(tables[j][z[j]], arms[j][2], strict=True)) - arms[j][4] * (z[j][1] > 1))
                if j == i
                else sum(p * r for p, r in zip(tables[j][z[j]], arms[j][3], strict=True))
                for j in range(len(arms))
            )
            after = [waits[j][z[j]] for j in range(len(arms))]
            moves = []
            for k, p in enumerate(tables[i][z[i]]):
                after[i] = (k, 1)
                moves.append((p, number[tuple(after)]))
            options.append((pay, moves))
        choices.append(options)
    values = [0.0] * len(reachable)
    for _ in range(sweeps):
        best = [max(pay + sum(p * values[n] for p, n in moves) for pay, moves in options) for options in choices]
        change = [b - v for b, v in zip(best, values, strict=True)]
        low, high = min(change), max(change)
        if high - low < 1e-11:
            break
        values = [v + 0.9 * (c - low) for v, c in zip(values, change, strict=True)]
    return low, high
