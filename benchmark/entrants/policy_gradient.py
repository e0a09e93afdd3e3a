"""An entrant of the planning track: REINFORCE on the Gymnasium environment, for a score of each kind and state.

Arms are drawn one after the other by a softmax of the scores of their kinds and states. A score moves along the
gradient of the log-probability of the draws, times the advantage of the slot: the discounted reward from then on, less
its mean over slots. Played are the arms of the highest scores. Large problems are trained on fewer arms of each kind.

    cd benchmark/entrants && restless benchmark run planning --policy policy_gradient:entrant
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from restless_bandits import Arm, Problem, ProblemError
from restless_bandits.gym import ID

Array = npt.NDArray[Any]
EPISODES, SLOTS, RATE, DISCOUNT = 150, 60, 0.15, 0.9
MOST_ARMS = 40


def stated(given: Mapping[str, Any]) -> Problem:
    """Return the problem of the first message, with fewer arms of each kind if there are many."""
    n_arms = sum(kind["count"] for kind in given["kinds"])
    share = max(1, -(-n_arms // MOST_ARMS))
    if any(kind["count"] % share for kind in given["kinds"]) or given["plays"] % share:
        share = 1
    arms = []
    for number, kind in enumerate(given["kinds"]):
        fields = {key: value for key, value in kind.items() if value is not None}
        arms.append(Arm(**fields | {"count": kind["count"] // share, "name": f"kind {number}"}))
    return Problem(arms, plays=given["plays"] // share, observed="all")


def drawn(scores: Array, plays: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw arms without repetition, and return the gradient of the log-probability by the score of each arm."""
    weights, gradient, left = np.exp(scores - scores.max()), np.zeros(len(scores)), np.ones(len(scores))
    arms = np.argsort(-(scores + rng.gumbel(size=len(scores))))[:plays]
    for arm in arms:
        chances = weights * left
        gradient -= chances / chances.sum()
        gradient[arm] += 1
        left[arm] = 0
    return arms, gradient


def trained(problem: Problem, seed: int) -> Array:
    """Return scores (kind, state)."""
    rng, kind = np.random.default_rng(seed), problem.kind_of_arm
    scores = np.zeros((len(problem.kinds), max(problem.n_states)))
    env = gymnasium.make(ID, problem=problem, horizon=SLOTS, disable_env_checker=True)
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=seed + episode)
        steps, rewards = [], []
        for _ in range(SLOTS):
            states = observation["state"]
            arms, gradient = drawn(scores[kind, states], problem.plays, rng)
            action = int(arms[0]) if problem.plays == 1 else arms
            observation, reward, *_ = env.step(action)
            steps.append((states, gradient))
            rewards.append(float(reward))
        returns = np.array(rewards)
        for slot in range(SLOTS - 2, -1, -1):
            returns[slot] += DISCOUNT * returns[slot + 1]
        advantages = (returns - returns.mean()) / (returns.std() + 1e-9)
        # The last slots have no future in their returns.
        for (states, gradient), advantage in list(zip(steps, advantages, strict=True))[: SLOTS - 10]:
            np.add.at(scores, (kind, states), RATE * advantage * gradient / SLOTS)
    return scores


def entrant(start: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    if start["track"] != "planning" or start["view"] != "states":
        raise ProblemError("the policy looks at single arms of known parameters")
    scores = trained(stated(start["problem"]), start["seed"])
    kind = np.repeat(np.arange(len(scores)), [one["count"] for one in start["problem"]["kinds"]])
    plays = start["problem"]["plays"]
    return lambda message: np.argsort(-scores[kind, message["states"]], kind="stable")[:plays].tolist()
