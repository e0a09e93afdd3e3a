"""A Gymnasium environment for any problem, and learners that play in the environment.

    import gymnasium
    import restless_bandits.gym

    env = gymnasium.make("restless_bandits/RestlessBandit-v0", problem="paper-1")
    observation, info = env.reset(seed=0)
    observation, reward, terminated, truncated, info = env.step(0)

The import of this module registers the name with Gymnasium.

The environment follows the slot standard (see ``problem``): a step is a slot. The observation is the full belief: the
last observed state of each arm and the slots since then. True states of all arms are in ``info`` only. Where all states
are observed, the observation is the present state of each arm. The random
numbers are Gymnasium's, from ``env.np_random``: a seed gives other runs than in ``rb.simulate``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.optional_dependencies import missing_extra
from restless_bandits._internal.validation import Array, IntArray, check_int
from restless_bandits.model.problem import AnyProblem, as_problem
from restless_bandits.model.record import Record
from restless_bandits.model.rewards import ZERO_TO_ONE, draw_reward
from restless_bandits.simulation.chain_world import ChainWorld

try:
    import gymnasium
    from gymnasium import spaces
    from gymnasium.error import ResetNeeded
    from gymnasium.vector.utils import batch_space
except ImportError:
    raise ProblemError(missing_extra("the environment", "gymnasium", "gym")) from None

if TYPE_CHECKING:
    from restless_bandits.agent.agent import Agent
    from restless_bandits.learning.learners.base import Learner

    _Numbers = spaces.MultiDiscrete[np.int64]
else:
    # Before version 1.4 Gymnasium takes no type parameter here.
    _Numbers = spaces.MultiDiscrete

__all__ = ["ID", "ArmChoice", "Play", "RestlessBanditEnv", "play"]

ID = "restless_bandits/RestlessBandit-v0"
if ID not in gymnasium.registry:
    gymnasium.register(id=ID, entry_point=f"{__name__}:RestlessBanditEnv")

ArmObservation = dict[str, IntArray]


class ArmChoice(_Numbers):
    """Several different arms: a ``MultiDiscrete`` that neither contains nor draws a repeated arm."""

    def __init__(self, n_arms: int, plays: int, seed: int | np.random.Generator | None = None) -> None:
        super().__init__([n_arms] * plays, seed=seed)

    def sample(self, mask: Any = None, probability: Any = None) -> IntArray:
        """Draw different arms, all choices being equally likely."""
        if mask is not None or probability is not None:
            raise ProblemError("different arms are drawn without a mask; draw them yourself")
        return self.np_random.permutation(int(self.nvec[0]))[: len(self.nvec)]

    def contains(self, x: Any) -> bool:
        return super().contains(x) and len(set(np.asarray(x).tolist())) == len(self.nvec)

    def __repr__(self) -> str:
        return f"ArmChoice({self.nvec[0]}, {len(self.nvec)})"


@batch_space.register(ArmChoice)
def _batched(space: ArmChoice, n: int = 1) -> spaces.Tuple[Any]:
    """The choices of many environments; a plain array of numbers would be drawn with repeated arms."""
    seeds = np.random.SeedSequence(int(space.np_random.integers(1 << 62))).spawn(n)
    return spaces.Tuple([ArmChoice(int(space.nvec[0]), len(space.nvec), np.random.default_rng(seed)) for seed in seeds])


class RestlessBanditEnv(gymnasium.Env[ArmObservation, Any]):
    """A restless bandit as a Gymnasium environment, registered as ``restless_bandits/RestlessBandit-v0``.

    Parameters
    ----------
    problem
        A problem, the name of a built-in problem, or a TOML file.
    horizon
        Slots after which an episode is truncated; None for never. Episodes never terminate: a bandit has no last slot.
    elapsed_cap
        The largest observed number of elapsed slots; the environment itself counts on.
    render_mode
        ``"ansi"`` makes ``render`` return a text with a line for each arm.

    Notes
    -----
    *Action*: the number of an arm, ``Discrete(n_arms)``; with ``plays`` > 1 as many different arms in any order,
    ``ArmChoice(n_arms, plays)``. Any other action, such as a repeated arm, is a ``ProblemError`` and changes nothing.

    *Observation*, a dictionary with an entry for each arm. ``last_state`` has the extra code ``n_states`` for an arm
    with an unknown initial state until its first observation, and for an arm that reacts to pulls or has a set-up cost
    until its first pull. ``elapsed`` is the number of slots since then as of the
    coming slot, from 1 to ``elapsed_cap``. Policies accept both arrays unchanged, for one environment or a vector of
    environments: ``policy.choose(observations["last_state"], observations["elapsed"])``. With ``observed = "all"`` the
    only entry is ``state``, the state of each arm in the coming slot, for ``policy(observation["state"])``.

    *Reward*: the sum of the rewards of the arms pulled, in the units of the problem. Arms that pay at rest add their
    rewards, and set-up costs are subtracted.

    *Changes* of the problem happen at their slots, in every episode; observations do not announce a change.

    *Info*: ``states``, the true states of all arms in the slot just played (after ``reset``: one step before the first
    slot), which no player may know; and after a step ``rewards``, one for each arm of the action. Where arms pay at
    rest or cost a set-up, ``resting`` is the rest of the reward of the step.

    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - declared so by Gymnasium

    def __init__(
        self,
        problem: AnyProblem = "paper-1",
        *,
        horizon: int | None = 1000,
        elapsed_cap: int = 1000,
        render_mode: str | None = None,
    ) -> None:
        self.problem = as_problem(problem)
        self._world = ChainWorld(self.problem, "gym")
        self.horizon = None if horizon is None else check_int("horizon", horizon, also="or None for no end")
        # At least 2: Gymnasium refuses a space of a single number.
        self.elapsed_cap = check_int("elapsed_cap", elapsed_cap, 2)
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ProblemError(f"there is no render_mode {render_mode!r}; give 'ansi', or leave it out")
        self.render_mode = render_mode

        n, sizes = self.problem.n_arms, np.array(self.problem.n_states)
        self._all_observed = self.problem.observed == "all"
        start = sizes if self._all_observed else Record.of_problem(self.problem).last_state
        self._start = start
        parts: dict[str, spaces.Space[Any]] = (
            {"state": spaces.MultiDiscrete(sizes)}
            if self._all_observed
            else {
                "last_state": spaces.MultiDiscrete(sizes + (start == sizes)),
                "elapsed": spaces.Box(1, self.elapsed_cap, (n,), np.int64),
            }
        )
        # Gymnasium types the values of this space as Any; the observations here are arrays.
        self.observation_space = spaces.Dict(parts)  # type: ignore[assignment]
        self.action_space = spaces.Discrete(n) if self.problem.plays == 1 else ArmChoice(n, self.problem.plays)

        self._fixed = np.array([arm.reward_law == "fixed" for arm in self.problem.arms])
        zero_or_one = [arm.reward_law == "bernoulli" and arm.reward_range == ZERO_TO_ONE for arm in self.problem.arms]
        self._binary_or_fixed = bool((self._fixed | zero_or_one).all())
        self._pays_at_rest = not {"passive_rewards", "setup_cost"}.isdisjoint(self.problem.features)
        self._slot: int | None = None

    def _drawn(self, arms: IntArray) -> Array:
        """Rewards of pulled arms in their present states."""
        if self._binary_or_fixed:
            means = np.array([self._world.arms[arm].rewards[self._world.states[arm]] for arm in arms])
            return np.where(self._fixed[arms], means, self.np_random.random(len(arms)) < means)
        return np.array([self._world.reward(arm, self.np_random) for arm in arms.tolist()])

    def _resting(self, arms: IntArray) -> float:
        """What the other arms pay, less the set-up costs of the pulled arms."""
        total = 0.0
        for number, arm in enumerate(self._world.arms):
            if number in arms:
                total -= 0.0 if number in self._pulled else arm.setup_cost
            elif arm.passive_rewards is not None:
                mean = float(arm.passive_rewards[self._world.states[number]])
                total += draw_reward(arm.reward_law, mean, arm.reward_range, arm.reward_spread, self.np_random)
        return total

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[ArmObservation, dict[str, Any]]:
        """Begin an episode; there are no options."""
        super().reset(seed=seed)
        self._world.begin(self.np_random.random(self.problem.n_arms))
        self._last_state = self._start.copy()
        self._last_slot = np.zeros(self.problem.n_arms, dtype=np.int64)
        self._slot = 0
        self._pulled: IntArray = np.zeros(0, dtype=np.int64)
        self._reward = 0.0
        self._played = self._world.states.copy()
        info = {"states": self._played.copy()}
        if self._all_observed:
            self._step_arms()
        return self._observation(), info

    def _step_arms(self) -> IntArray:
        """Step all arms into the next slot."""
        return self._world.step(self.np_random.random(self.problem.n_arms), self._pulled.tolist())

    def step(self, action: Any) -> tuple[ArmObservation, float, bool, bool, dict[str, Any]]:
        """Play a slot."""
        slot = self._started() + 1
        arms = self._arms(action)
        self._slot = slot
        # The last step of the slot before is taken here, unless its result was shown: ``states`` are those of the slot
        # just played.
        states = self._world.states if self._all_observed else self._step_arms()
        self._played = states.copy()
        rewards = self._drawn(arms)
        self._last_state[arms] = states[arms]
        self._last_slot[arms] = self._slot
        info: dict[str, Any] = {"states": states.copy(), "rewards": rewards}
        reward = float(rewards.sum())
        if self._pays_at_rest:
            info["resting"] = self._resting(arms)
            reward += info["resting"]
        self._pulled, self._reward = arms, reward
        if self._all_observed:
            self._step_arms()
        truncated = self.horizon is not None and self._slot >= self.horizon
        return self._observation(), self._reward, False, truncated, info

    def render(self) -> Any:
        """Return the present slot as text, with hidden states; None without ``render_mode``."""
        if self.render_mode is None:
            return None
        slot = self._started()
        width = max(len(arm.name) for arm in self.problem.arms)
        lines = [f"slot {slot}, reward {self._reward:g}"]
        for i, arm in enumerate(self.problem.arms):
            ago = slot - int(self._last_slot[i])
            seen = "never seen"
            if self._last_state[i] < arm.n_states:
                when = "now" if i in self._pulled else f"{ago} slot{'s' if ago != 1 else ''} ago"
                seen = f"seen in {self._last_state[i]} {when}"
            mark = "*" if i in self._pulled else " "
            lines.append(f"{mark} {arm.name:{width}}  in state {self._played[i]}, {seen}")
        return "\n".join(lines)

    def _started(self) -> int:
        if self._slot is None:
            raise ResetNeeded("the environment was not started; call reset first")
        return self._slot

    def _observation(self) -> ArmObservation:
        if self._all_observed:
            return {"state": self._world.states.copy()}
        elapsed = np.minimum(self._started() + 1 - self._last_slot, self.elapsed_cap)
        return {"last_state": self._last_state.copy(), "elapsed": elapsed}

    def _arms(self, action: Any) -> IntArray:
        plays, n = self.problem.plays, self.problem.n_arms
        given = np.asarray(action)
        if given.shape != (() if plays == 1 else (plays,)) or given.dtype.kind not in "iu":
            what = "the number of an arm" if plays == 1 else f"a sequence of {plays} different arms"
            raise ProblemError(f"action {action!r} is not {what}")
        arms = given.reshape(-1).astype(np.int64)
        if arms.min() < 0 or arms.max() >= n:
            raise ProblemError(f"action {action!r} names an arm that is not there; arms are 0 to {n - 1}")
        if plays > 1 and len(set(arms.tolist())) < plays:
            raise ProblemError(f"action {action!r} names an arm twice; an arm can be pulled once a slot")
        return arms


@dataclass(frozen=True, eq=False)
class Play:
    """An episode played by a learner: arrays (slot, play)."""

    arms: IntArray
    states: IntArray
    """The observed states of the arms."""
    rewards: Array
    """The rewards of the arms."""
    resting: Array
    """What the other arms paid in each slot, less set-up costs."""
    agent: Agent
    """The learner with all its observations: ``rb.estimate(agent.record)`` returns estimates from them."""

    @property
    def mean_reward(self) -> float:
        """Reward a slot."""
        return float((self.rewards.sum() + self.resting.sum()) / len(self.rewards))


def play(
    env: gymnasium.Env[ArmObservation, Any], learner: Learner | str, *, slots: int | None = None, seed: int = 0
) -> Play:
    """Let a learner of this package play an episode of an environment.

    The learner gets the same task as from ``rb.simulate``, and the observations of the environment.

    Parameters
    ----------
    env
        An environment of this module, wrapped or not, with unchanged observations.
    learner
        A learner, or its spec such as ``"likelihood-ucb"``.
    slots
        Slots to play, fewer if the episode is truncated earlier; the full episode by default.
    seed
        The seed of the environment and of the learner.

    """
    from restless_bandits.agent.agent import Agent
    from restless_bandits.learning.learners import as_learner
    from restless_bandits.simulation.walks import play_slot

    inner = env.unwrapped
    if not isinstance(inner, RestlessBanditEnv):
        raise ProblemError(f"{inner!r} is not a restless bandit; make one with gymnasium.make({ID!r}, problem=...)")
    if inner.problem.observed == "all":
        raise ProblemError(
            "learners here see pulled arms alone, and all states are observed; play a policy of the states"
        )
    limits = [limit for limit in (slots, inner.horizon) if limit is not None]
    if not limits:
        raise ProblemError("the environment has no horizon; say how many slots to play")
    horizon = min(check_int("slots", limit) for limit in limits)
    player = as_learner(learner)
    agent = Agent(player, player.task(inner.problem, horizon), seed=seed, on_change="ignore")
    truncated = False

    def answer(arms: Sequence[int]) -> tuple[list[int], list[float]]:
        nonlocal truncated
        observation, _, _, truncated, info = env.step(arms[0] if inner.problem.plays == 1 else np.array(arms))
        resting.append(info.get("resting", 0.0))
        return observation["last_state"][list(arms)].tolist(), info["rewards"].tolist()

    resting: list[float] = []
    env.reset(seed=seed)
    played: list[tuple[Sequence[int], Sequence[int], Sequence[float]]] = []
    while not truncated and len(played) < horizon:
        played.append(play_slot(agent, answer))
    arms, states, rewards = (np.array(column) for column in zip(*played, strict=True))
    return Play(arms, states, rewards, np.array(resting), agent)
