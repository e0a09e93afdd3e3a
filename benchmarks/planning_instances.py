"""Instances of the literature on observed arms, computed again: ``python -m benchmarks.planning_instances``.

Every number is printed beside what was published, or beside a closed form. What was computed is kept in
docs/benchmarks/planning-instances.json, and the tables of docs/planning.md are written from it. The command takes about
two minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linprog

import restless_bandits as rb
from benchmarks import pages
from restless_bandits._internal.validation import Array
from restless_bandits.model.deadlines import deadline_states
from restless_bandits.oracles import whittle_index
from restless_bandits.oracles.observed import ObservedArms
from restless_bandits.oracles.observed.finite import relax_horizon

KEPT = "planning-instances"
PAGE = pages.DOCS / "planning.md"
N_ARMS = 1000
INSTANCES = ("three-states", "conveyor-8", "circulant-4", "restart-5", "deadline-12-9", "maintenance-6")


@dataclass(frozen=True)
class Published:
    """Published digits of a quantity, and the function that computes the quantity here."""

    instance: str
    quantity: str
    digits: tuple[str, ...]
    computed: Callable[[], Sequence[float]]

    def units(self, numbers: Sequence[float]) -> float:
        """Return the largest difference of the numbers in units of the last published digit."""
        pairs = zip(self.digits, numbers, strict=True)
        return max(abs(float(text) - number) * 10.0 ** decimals(text) for text, number in pairs)


def decimals(text: str) -> int:
    return len(text.partition(".")[2])


def index_of(name: str, discount: float | None = None) -> list[float]:
    """Return Whittle's index of the kind of arm of a built-in problem."""
    return state_index(kind_of(name), discount)


def kind_of(name: str) -> rb.Arm:
    """Return the one kind of arm of a built-in problem."""
    (arm,) = rb.load_problem(name).kinds
    assert isinstance(arm, rb.Arm)
    return arm


def state_index(arm: Any, discount: float | None = None) -> list[float]:
    numbers: list[float] = whittle_index(arm, observed="all", discount=discount).table[:, 0].tolist()
    return numbers


def printed_bound() -> list[float]:
    """Return the bound of ``three-states`` from the rows as printed, by a linear program over frequencies."""
    n, share = 3, 0.4
    passive = [[0.02232142, 0.10229283, 0.87538575], [0.03426605, 0.17175704, 0.79397691], [0.52324756, 0.45523298]]
    active = [[0.14874601, 0.30435809, 0.54689589], [0.56845754, 0.41117331, 0.02036915], [0.25265570, 0.27310439]]
    passive[2].append(0.02151947)
    active[2].append(0.4742399)
    flow = np.hstack([np.eye(n) - np.transpose(passive), np.eye(n) - np.transpose(active)])
    rows = np.vstack([flow, np.ones(2 * n), np.repeat([0.0, 1.0], n)])
    gain = np.concatenate([np.zeros(n), kind_of("three-states").rewards])
    found = linprog(-gain, A_eq=rows, b_eq=[0.0] * n + [1.0, share], method="highs")
    return [-float(found.fun or 0.0)]


def bound_of(name: str) -> list[float]:
    """Return the bound a slot and arm of a built-in problem."""
    problem = rb.load_problem(name).with_arms(N_ARMS)
    return [rb.solve(problem, "best-arm").upper / N_ARMS]


def dense_arm(seed: int) -> rb.Arm:
    """Return the example of markovianbandit-pkg: a random dense arm of four states."""
    np.random.seed(seed)  # noqa: NPY002 - the published numbers come from this generator
    chains = np.random.exponential(size=(4, 2, 4))  # noqa: NPY002
    chains /= chains.sum(axis=2, keepdims=True)
    rewards = np.random.rand(4, 2)  # noqa: NPY002
    return rb.Arm(
        chains[:, 0], rewards[:, 1], active_transitions=chains[:, 1], passive_rewards=rewards[:, 0], reward_law="fixed"
    )


def bernoulli_arms(horizon: int, count: int = 300) -> rb.Problem:
    """Return arms of unknown success probability with a uniform prior, a third of which are pulled in each slot.

    A state counts successes and failures, each from one on.
    """
    states = [(wins, trials + 2 - wins) for trials in range(horizon) for wins in range(1, trials + 2)]
    place = {state: i for i, state in enumerate(states)}
    mean = np.array([wins / (wins + losses) for wins, losses in states])
    active = np.zeros((len(states), len(states)))
    for (wins, losses), i in place.items():
        # The last states are reached in the last slot.
        after = [((wins + 1, losses), mean[i]), ((wins, losses + 1), 1 - mean[i])]
        for state, probability in after if after[0][0] in place else [((wins, losses), 1.0)]:
            active[i, place[state]] = probability
    arm = rb.Arm(np.eye(len(states)), mean, active_transitions=active, initial=0, count=count, reward_law="fixed")
    return rb.Problem([arm], plays=count // 3, observed="all")


def bernoulli_bound(horizon: int) -> list[float]:
    arms = ObservedArms.of(bernoulli_arms(horizon))
    return [relax_horizon(arms, horizon).bound / arms.n_arms]


def deadline_difference() -> list[float]:
    """Return the largest difference of the index from the closed form of Yu, Xu, Tong, at the discount .99."""
    discount, cost = 0.99, 0.5

    def closed(time: int, load: int) -> float:
        if load == 0:
            return 0.0
        if load <= time - 1:
            return 1 - cost
        left = load - time
        return float(discount ** (time - 1) * 0.2 * ((left + 1) ** 2 - left**2) + 1 - cost)

    expected = np.array([closed(*state) for state in deadline_states(12, 9)])
    return [float(np.abs(index_of("deadline-12-9", discount) - expected).max())]


def maintenance_difference() -> list[float]:
    """Return the largest difference of the index from a renewal argument.

    A machine wears from state k to k + 1 with probability p_k, earns r_k, and is as new after a repair. Before state k
    it earns S_k = Σ r_j / p_j in T_k = Σ 1 / p_j slots. The repairs in state k and in state k + 1 are equally good at
    the subsidy S_k − r_k (T_k + 1).
    """
    arm = kind_of("maintenance-6")
    wear, reward = np.diagonal(arm.transitions, 1), arm.mean_rewards[:, 0]
    slots = np.concatenate([[0], np.cumsum(1 / wear)])
    earned = np.concatenate([[0], np.cumsum(reward[:-1] / wear)])
    return [float(np.abs(state_index(arm) - (earned - reward * (slots + 1))).max())]


def two_state_difference() -> list[float]:
    """Return the largest difference from a closed form on random arms.

    A pull adds δ to the probability of the good state, which alone pays 1. Both states have the index
    βδ / (1 − β (p11 − p01)).
    """
    rng, worst = np.random.default_rng(0), 0.0
    for _ in range(100):
        to_good = rng.uniform(0.05, 0.6, 2)
        rise, discount = rng.uniform(0.05, 0.35), rng.uniform(0.5, 0.999)
        chains = [np.stack([1 - column, column], axis=1) for column in (to_good, to_good + rise)]
        arm = rb.Arm(chains[0], [0, 1], active_transitions=chains[1], passive_rewards=[0, 1], reward_law="fixed")
        expected = discount * rise / (1 - discount * (to_good[1] - to_good[0]))
        worst = max(worst, float(np.abs(np.array(state_index(arm, discount)) - expected).max()))
    return [worst]


PUBLISHED = (
    Published(
        "markovianbandit-pkg, seed 42",
        "index",
        ("0.87536099", "-0.08765819", "-0.15279431", "-0.51905682"),
        lambda: state_index(dense_arm(42)),
    ),
    Published("`circulant-4`", "index", ("-0.5", "0.5", "1.0", "-1.0"), lambda: index_of("circulant-4")),
    Published(
        "`circulant-4`",
        "index, β = .99",
        ("-0.495", "0.495", "0.98990101", "-0.98990101"),
        lambda: index_of("circulant-4", 0.99),
    ),
    Published("`circulant-4`", "bound", ("0.2",), lambda: bound_of("circulant-4")),
    Published("`restart-5`", "index", ("-0.9", "-0.73", "-0.5", "-0.26", "-0.01"), lambda: index_of("restart-5")),
    Published("`three-states`", "bound", ("0.1238001673",), lambda: bound_of("three-states")),
    Published("`three-states`", "bound, rows as printed", ("0.1238001673",), printed_bound),
    Published(
        "`three-states`", "index", ("0.37401552", "0.181994233", "-0.02115716"), lambda: index_of("three-states")
    ),
    Published("`conveyor-8`", "bound", ("0.0124999920",), lambda: bound_of("conveyor-8")),
    Published(
        "`conveyor-8`",
        "index",
        ("0.025", "0.0333", "0.05", "0.1", "-0.025", "-0.0333", "-0.05", "-0.1"),
        lambda: index_of("conveyor-8"),
    ),
    Published("Bernoulli arms, 15 slots", "bound", ("3.516196287",), lambda: bernoulli_bound(15)),
    Published("Bernoulli arms, 20 slots", "bound", ("4.814311826",), lambda: bernoulli_bound(20)),
)
CLOSED_FORMS: Mapping[str, Callable[[], Sequence[float]]] = {
    "`deadline-12-9`, 121 states, β = .99": deadline_difference,
    "`maintenance-6`, 6 states": maintenance_difference,
    "100 random arms of two states, discounted": two_state_difference,
}
SIMULATED: Mapping[tuple[str, str, int], tuple[float, float]] = {
    ("three-states", "whittle", 100): (0.1153667, 2.66e-5),
    ("three-states", "whittle", 500): (0.1143482, 9.1e-6),
    ("three-states", "whittle", 1000): (0.1142251, 3.4e-6),
    ("three-states", "lp-index", 100): (0.1154314, 4.16e-5),
    ("three-states", "lp-index", 500): (0.1143488, 1.61e-5),
    ("three-states", "lp-index", 1000): (0.1142341, 7.0e-6),
}
"""Published means and standard errors of five runs of 20 000 slots, by instance, policy and number of arms."""

CONVEYOR = {"follow-the-virtual-advice": 0.011944, "the order of a linear program's dual": 0.000024}
"""Published gains of ``conveyor-8`` with 1000 arms: twenty runs of 20 000 slots."""


def last_restart() -> dict[str, float]:
    """Return the gains of a restart in the last state alone and of no restart, at a subsidy of 0."""
    arm = kind_of("restart-5")
    last = np.arange(5) == 4
    gains = {}
    for name, pulled in (("restart", last), ("rest", np.zeros(5, dtype=bool))):
        chain = np.where(pulled[:, None], arm.active_chain, arm.chain)
        reward = np.where(pulled, arm.mean_rewards[:, 1], arm.mean_rewards[:, 0])
        gains[name] = float(stationary(chain) @ reward)
    return gains


def stationary(chain: Array) -> Array:
    """Return the stationary distribution of a chain with one recurrent class."""
    n = len(chain)
    found = np.linalg.lstsq(np.vstack([chain.T - np.eye(n), np.ones(n)]), np.append(np.zeros(n), 1.0), rcond=None)[0]
    return np.asarray(found)


def solved(name: str, oracle: str, n_arms: int) -> dict[str, Any]:
    """Return what ``restless solve`` says of an instance, a slot and arm."""
    found = rb.solve(rb.load_problem(name).with_arms(n_arms), oracle)
    assert found.gain is not None
    numbers = {"gain": found.gain, "stderr": found.gain_stderr or 0.0, "bound": found.upper}
    each = {word: number / n_arms for word, number in numbers.items()}
    chosen = (found.why or oracle).split(",")[0]
    return each | {"oracle": chosen, "plays": found.problem.plays}


def measured() -> dict[str, Any]:
    found: dict[str, Any] = {f"{one.instance} {one.quantity}": list(one.computed()) for one in PUBLISHED}
    found |= {name: list(computed()) for name, computed in CLOSED_FORMS.items()}
    found["restart-5 gains"] = last_restart()
    found["seed 2791 violation"] = whittle_index(dense_arm(2791), observed="all").violation
    found |= {" ".join(map(str, key)): solved(*key) for key in SIMULATED}
    found |= {f"{name} auto": solved(name, "auto", N_ARMS) for name in INSTANCES}
    return found


def published_table(kept: Mapping[str, Any]) -> str:
    """Return the table of published numbers."""
    heads = "instance | quantity | published | here | difference in units of the last digit"
    lines = [f"| {heads} |", "|---" * 5 + "|"]
    for one in PUBLISHED:
        numbers = kept[f"{one.instance} {one.quantity}"]
        shown = [f"{number:.{max(decimals(text), 4)}f}" for text, number in zip(one.digits, numbers, strict=True)]
        units = one.units(numbers)
        last = f"{units:.1f}" if units <= 0.5 else f"**{units:.1f}**"
        lines.append(f"| {one.instance} | {one.quantity} | {', '.join(one.digits)} | {', '.join(shown)} | {last} |")
    return "\n".join(lines)


def closed_form_table(kept: Mapping[str, Any]) -> str:
    """Return the table of differences from closed forms."""
    lines = ["| arms | largest difference of the index from the closed form |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {kept[name][0]:.1e} |" for name in CLOSED_FORMS)])


def simulated_table(kept: Mapping[str, Any]) -> str:
    """Return the table of simulated gains."""
    heads = "instance | policy | arms | published | here | difference in standard errors"
    lines = [f"| {heads} |", "|---" * 6 + "|"]
    for (name, oracle, arms), (mean, error) in SIMULATED.items():
        here = kept[f"{name} {oracle} {arms}"]
        difference = (here["gain"] - mean) / float(np.hypot(error, here["stderr"]))
        cells = [f"{mean:.6f} ± {error:.6f}", f"{here['gain']:.6f} ± {here['stderr']:.6f}", f"{difference:+.1f}"]
        lines.append(f"| `{name}` | `{oracle}` | {arms} | {' | '.join(cells)} |")
    return "\n".join(lines)


def default_table(kept: Mapping[str, Any]) -> str:
    """Return the table of what ``restless solve`` takes by default."""
    lines = ["| instance | plays | policy taken | gain | bound | below the bound |", "|---" * 6 + "|"]
    for name in INSTANCES:
        here = kept[f"{name} auto"]
        below, error = ((here["bound"] - here["gain"]) / abs(here["bound"]), here["stderr"] / abs(here["bound"]))
        gap = f"{100 * below:.3f} ± {100 * error:.3f} %"
        numbers = f"{here['gain']:.6f} ± {here['stderr']:.6f} | {here['bound']:.6f} | {gap}"
        lines.append(f"| `{name}` | {here['plays']} | `{here['oracle']}` | {numbers} |")
    policies = " and ".join(f"{gain:.6f} by {policy}" for policy, gain in CONVEYOR.items())
    return "\n".join([*lines, "", f"Published gains of `conveyor-8` with {N_ARMS} arms:\n{policies}."])


def verdict(kept: Mapping[str, Any]) -> str:
    longest = kept["seed 2791 violation"]
    found = f"not indexable: a resting state turns back to pulling as the subsidy grows by {longest:.6f}"
    return f"The arm of seed 2791 is published as not indexable. Here, the arm is\n{found if longest else 'indexable'}."


def restart_remark(kept: Mapping[str, Any]) -> str:
    gains = kept["restart-5 gains"]
    sign = "positive" if gains["restart"] > gains["rest"] else "negative"
    return (
        "The published index of the last state of `restart-5` has another sign. Without a subsidy, a restart in the\n"
        f"last state alone earns {gains['restart']:.6f} a slot, and no restart at all {gains['rest']:.6f}, so the "
        f"index is {sign}."
    )


def written(page: str) -> str:
    """Return docs/planning.md as the kept results say."""
    kept = pages.load(KEPT)
    parts = {
        "published": published_table,
        "closed-forms": closed_form_table,
        "restart": restart_remark,
        "verdict": verdict,
        "simulated": simulated_table,
        "default": default_table,
    }
    return pages.filled(page, {name: partial(table, kept) for name, table in parts.items()})


def main() -> None:
    pages.keep(KEPT, measured())
    page = written(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")
    print(page)


if __name__ == "__main__":
    main()
