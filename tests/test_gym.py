"""The Gymnasium environment: the slot standard, Gymnasium's own rules, and learners that play it."""

import copy
import itertools
import pickle
import subprocess
import sys

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import restless_bandits as rb
from restless_bandits import ProblemError
from restless_bandits._internal.optional_dependencies import install_command

ID = rb.gym.ID
PAPER = rb.Problem.builtin("paper-1")
UNKNOWN = rb.Problem.random(3, [2, 3, 4], seed=5, initial="unknown", kind="general")
SEVERAL = rb.Problem.random(4, [2, 3, 2, 3], seed=6, plays=2, reward_law="fixed")
CONTROLLED = rb.Problem(
    [
        rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]]),
        rb.Arm([[0.8, 0.2], [0.3, 0.7]], [0.8, 0], active_transitions=[[0.5, 0.5], [0.2, 0.8]]),
    ]
)
RESTING = rb.Problem(
    [
        rb.Arm(
            *([[0.2, 0.5, 0.3], [0.6, 0.2, 0.2], [0.1, 0.1, 0.8]], [2.5, 1, 0]),
            active_transitions=[[0.7, 0.2, 0.1], [0.3, 0.3, 0.4], [0.5, 0.25, 0.25]],
            passive_rewards=[0.5, 0.25, 0.75],
            initial=1,
            reward_law="fixed",
            reward_range=(0, 4),
        ),
        rb.Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0], setup_cost=0.125, initial=0, reward_law="fixed"),
        rb.Arm([[0.5, 0.5], [0.2, 0.8]], [1, 0], initial=[0.25, 0.75], reward_law="fixed"),
    ],
    plays=2,
)
"""Arms that react and pay at rest, have a set-up cost, or an initial distribution."""


def make(problem=PAPER, **options):
    return gymnasium.make(ID, problem=problem, **options)


def play_at_random(env, slots, seed=0):
    """Random actions; returns (action, observation, reward, info) of every step, the reset first."""
    env.action_space.seed(seed)
    observation, info = env.reset(seed=seed)
    steps = [(None, observation, 0.0, info)]
    for _ in range(slots):
        action = env.action_space.sample()
        observation, reward, terminated, _, info = env.step(action)
        assert not terminated
        steps.append((action, observation, reward, info))
    return steps


def same(one, other):
    return all(
        np.array_equal(mine[0], theirs[0])
        and all(np.array_equal(mine[1][key], theirs[1][key]) for key in mine[1])
        and mine[2] == theirs[2]
        and np.array_equal(mine[3]["states"], theirs[3]["states"])
        for mine, theirs in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("problem", [PAPER, UNKNOWN, SEVERAL, RESTING], ids=["one", "unknown", "several", "resting"])
def test_gymnasiums_own_checker_is_content(problem):
    # Warnings are errors throughout the suite.
    check_env(make(problem).unwrapped)


@pytest.mark.parametrize("how", ["make(NAME)", "make_vec(NAME, num_envs=1).envs[0]"])
@pytest.mark.parametrize(
    ("before", "name"),
    [
        ("", f"restless_bandits.gym:{ID}"),
        ("import restless_bandits.gym\n", ID),
        ("import restless_bandits as rb; rb.gym\n", ID),
    ],
    ids=["by module", "imported", "touched"],
)
def test_found_by_its_module_or_once_that_is_imported(before, name, how):
    code = (
        f"import sys, gymnasium\n{before}NAME = {name!r}\n"
        f"print(gymnasium.{how}.unwrapped.problem.name, {ID!r} in gymnasium.registry)\n"
        "assert 'numba' not in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "paper-1 True\n"


def test_without_gymnasium_a_sentence():
    code = (
        "import sys; sys.modules['gymnasium'] = None\n"
        "import restless_bandits as rb\n"
        "try:\n    rb.gym.play\nexcept rb.ProblemError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"the environment needs gymnasium; {install_command('gym')} brings it\n"


@pytest.mark.parametrize("problem", [UNKNOWN, SEVERAL, RESTING], ids=["unknown", "several", "resting"])
def test_what_is_observed_is_what_was_seen_and_no_more(problem):
    cap = 4
    steps = play_at_random(make(problem, horizon=None, elapsed_cap=cap).unwrapped, 300)
    # Told from the actions and the states they uncovered alone: nothing else can have leaked.
    # The step from an initial state is not that of a pull: such a state is no last state of an arm that tells pulls.
    last = [n if s is None else s for n, s in zip(problem.n_states, problem.initial, strict=True)]
    if problem is RESTING:
        last[:2] = problem.n_states[:2]
    elapsed, resting, before = [1] * problem.n_arms, 0.0, []
    for action, observation, reward, info in steps:
        if action is not None:
            arms = np.atleast_1d(action).tolist()
            if problem is RESTING:
                resting = 0.0 if 0 in arms else [0.5, 0.25, 0.75][info["states"][0]]
                resting -= 0.125 * (1 in arms and 1 not in before)
                assert info["resting"] == resting
            before = arms
            elapsed = [1 if i in arms else tau + 1 for i, tau in enumerate(elapsed)]
            for i in arms:
                last[i] = int(info["states"][i])
            assert reward == info["rewards"].sum() + resting
            if problem is not UNKNOWN:
                means = [problem.arms[i].rewards[last[i]] for i in arms]
                assert info["rewards"].tolist() == means
        assert observation["last_state"].tolist() == last
        assert observation["elapsed"].tolist() == [min(tau, cap) for tau in elapsed]


@pytest.mark.parametrize("problem", [UNKNOWN, CONTROLLED], ids=["unknown", "reacting"])
def test_states_and_rewards_have_their_laws(problem):
    slots = 12_000
    steps = play_at_random(make(problem, horizon=None).unwrapped, slots)
    seen, paid = {}, {}
    for before, (action, _, reward, info) in itertools.pairwise(steps):
        i, k = int(action), int(info["states"][action])
        s, tau = int(before[1]["last_state"][i]), int(before[1]["elapsed"][i])
        seen.setdefault((i, s, tau), []).append(k)
        paid.setdefault((i, k), []).append(reward)

    # Chi-square of every (arm, last state, elapsed) that was met often, all together.
    distance, freedom = 0.0, 0
    for (i, s, tau), found in seen.items():
        arm = problem.arms[i]
        known = arm.active_chain @ np.linalg.matrix_power(arm.transitions, tau - 1)
        distribution = known[s] if s < arm.n_states else arm.stationary
        expected = distribution * len(found)
        if expected.min() >= 5:
            counts = np.bincount(found, minlength=arm.n_states)
            distance += ((counts - expected) ** 2 / expected).sum()
            freedom += arm.n_states - 1
    assert freedom > 15
    # Wilson and Hilferty: (χ²/f)^(1/3) is nearly normal; beyond 4.9 standard deviations once in a million.
    spread = 2 / (9 * freedom)
    assert ((distance / freedom) ** (1 / 3) - (1 - spread)) / np.sqrt(spread) < 4.9

    for (i, k), rewards in paid.items():
        mean = problem.arms[i].rewards[k]
        # Hoeffding, two sides, nine states: a false alarm once in a million.
        assert abs(np.mean(rewards) - mean) < np.sqrt(np.log(18e6) / (2 * len(rewards)))


def test_impossible_moves_never_happen():
    # A cycle with rows whose sums round to less than one.
    arm = rb.Arm([[0.1, 0.9, 0], [0, 0.1, 0.9], [0.9, 0, 0.1]], [1, 0.5, 0], initial=0)
    env = make(rb.Problem([arm, arm]), horizon=None).unwrapped
    path = np.array([info["states"] for *_, info in play_at_random(env, 2000)])
    assert set(((path[1:] - path[:-1]) % 3).ravel().tolist()) == {0, 1}
    env.np_random = type("Last", (), {"random": lambda self, n: np.full(n, np.nextafter(1, 0))})()
    env._world.states = np.array([0, 1])
    assert env.step(0)[4]["states"].tolist() == [1, 2]


@pytest.mark.parametrize(("problem", "gain"), [(PAPER, 0.456464072292), (CONTROLLED, 0.4477629286)])
def test_the_exact_policy_earns_the_optimum(problem, gain):
    policy = rb.oracles.exact(problem).policy
    beliefs, bias, slots, total = policy.beliefs, policy.bias, 30_000, 0.0
    env = make(problem, horizon=None).unwrapped
    env.reset(seed=4)
    seen = env.step(0)[0]
    path, choices = [seen], {}
    for _ in range(slots):
        known = (*seen["last_state"].tolist(), *seen["elapsed"].tolist())
        if known not in choices:
            choices[known] = policy.choose(seen["last_state"][None], seen["elapsed"][None])[0, 0]
        seen, reward, *_ = env.step(choices[known])
        path.append(seen)
        total += reward

    # With h the bias, reward + h(after) − h(before) − μ* has mean zero whatever came before (Bellman's equation), and
    # the terms in h cancel along the path. A term ranges over less than 1.9, so by Azuma and Hoeffding the sum is
    # beyond 1.9 √(slots · ln(2/α)/2) with probability α = 1e-6 at most: 0.030 a slot, about half of what the best arm
    # alone falls short by.
    joint = beliefs.locate(*(np.array([step[key] for step in path]) for key in ("last_state", "elapsed")))
    for action in range(2):
        after, _ = beliefs.successors(joint, action)
        h = bias[beliefs.index(after.reshape(-1, 2)).reshape(after.shape[:2])]
        assert 1 + np.ptp(h, axis=1).max() < 1.9
    h = bias[beliefs.index(joint[[0, -1]])]
    assert abs(total - slots * gain + h[1] - h[0]) < 1.9 * np.sqrt(slots * np.log(2e6) / 2)


def test_same_seed_same_episode():
    for problem in (UNKNOWN, SEVERAL):
        env = make(problem)
        one = play_at_random(env, 60, seed=3)
        assert same(one, play_at_random(env, 60, seed=3))
        assert same(one, play_at_random(make(problem), 60, seed=3))
        assert not same(one, play_at_random(env, 60, seed=4))


def test_copies_go_on_alike():
    env = make(SEVERAL).unwrapped
    play_at_random(env, 10)
    twins = [copy.deepcopy(env), pickle.loads(pickle.dumps(env))]
    for action in ([0, 1], [3, 2], [1, 3]):
        mine = env.step(action)
        for twin in twins:
            theirs = twin.step(action)
            assert mine[1] == theirs[1]
            assert np.array_equal(mine[4]["states"], theirs[4]["states"])
    assert env.action_space == twins[1].action_space


def test_horizon():
    env = make(horizon=5)
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]
    assert make().unwrapped.horizon == 1000


@pytest.mark.parametrize(
    ("problem", "action", "message"),
    [
        (PAPER, 2, "action 2 names an arm that is not there; arms are 0 to 1"),
        (PAPER, -1, "arms are 0 to 1"),
        (PAPER, 0.0, r"action 0\.0 is not the number of an arm"),
        (PAPER, True, "action True is not the number of an arm"),
        (PAPER, [0, 1], "is not the number of an arm"),
        (SEVERAL, [1, 1], r"action \[1, 1\] names an arm twice; an arm can be pulled once a slot"),
        (SEVERAL, [1, 4], "arms are 0 to 3"),
        (SEVERAL, 1, "action 1 is not a sequence of 2 different arms"),
        (SEVERAL, [0, 1, 2], "is not a sequence of 2 different arms"),
    ],
)
def test_bad_actions_change_nothing(problem, action, message):
    env = make(problem)
    before = env.reset(seed=0)[0]
    with pytest.raises(ProblemError, match=message):
        env.step(action)
    good = 0 if problem is PAPER else [0, 1]
    after = env.step(good)
    fresh = make(problem)
    fresh.reset(seed=0)
    assert np.array_equal(before["elapsed"], np.ones(problem.n_arms))
    assert np.array_equal(after[4]["states"], fresh.step(good)[4]["states"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(horizon=0), "horizon is 0; it must be a positive whole number, or None"),
        (dict(elapsed_cap=1), "elapsed_cap is 1; it must be a whole number of at least 2"),
        (dict(problem="papr-1"), "did you mean 'paper-1'"),
        (dict(render_mode="human"), "there is no render_mode 'human'"),
        (
            dict(
                problem=rb.Problem([rb.TableArm(laws=PAPER.arms[0].state_distributions(3), rewards=[1, 0], initial=0)])
            ),
            "chains",
        ),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ProblemError, match=message):
        rb.gym.RestlessBanditEnv(**options)


def test_a_step_needs_a_start():
    env = make(render_mode="ansi").unwrapped
    for call in (lambda: env.step(0), env.render):
        with pytest.raises(gymnasium.error.ResetNeeded):
            call()


def test_choices_of_several_arms_are_drawn_evenly_and_without_repeats():
    space = rb.gym.ArmChoice(4, 2, seed=1)
    drawn = [tuple(space.sample().tolist()) for _ in range(1200)]
    counts = [drawn.count((i, j)) for i in range(4) for j in range(4) if i != j]
    assert sum(counts) == 1200
    # Chi-square with eleven degrees of freedom: beyond 52 less than once in a million.
    assert sum((count - 100) ** 2 / 100 for count in counts) < 52
    assert [0, 1] in space
    assert [1, 1] not in space
    with pytest.raises(ProblemError, match="without a mask"):
        space.sample(mask=())


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors(mode):
    envs = gymnasium.make_vec(ID, num_envs=2, vectorization_mode=mode, problem=SEVERAL, horizon=5)
    try:
        envs.action_space.seed(1)
        observations, infos = envs.reset(seed=7)
        alone = [make(SEVERAL, horizon=5) for _ in range(2)]
        states = [env.reset(seed=7 + i)[1]["states"] for i, env in enumerate(alone)]
        assert np.array_equal(infos["states"], states)
        for _ in range(4):
            actions = envs.action_space.sample()
            observations, rewards, *_ = envs.step(actions)
            for i, env in enumerate(alone):
                seen, reward, *_ = env.step(actions[i])
                assert np.array_equal(observations["last_state"][i], seen["last_state"])
                assert rewards[i] == reward
        # Policies answer for all environments at once, and their answers are actions.
        policy = rb.oracles.policy("myopic", SEVERAL)
        actions = policy.choose(observations["last_state"], observations["elapsed"])
        assert envs.step(actions)[3].tolist() == [True, True]
    finally:
        envs.close()


def test_policies_take_observations_as_they_are():
    env = make(UNKNOWN).unwrapped
    for policy in (rb.oracles.policy("whittle", UNKNOWN), rb.oracles.policy("exact", UNKNOWN, slots=10)):
        for _, seen, *_ in play_at_random(env, 20):
            last = [None if s == n else int(s) for s, n in zip(seen["last_state"], UNKNOWN.n_states, strict=True)]
            (arm,) = policy.choose(seen["last_state"][None], seen["elapsed"][None])[0]
            assert arm == policy(last, seen["elapsed"].tolist())


class TestPlay:
    @pytest.mark.parametrize(
        "problem", [PAPER, SEVERAL, UNKNOWN, RESTING], ids=["one", "several", "unknown", "resting"]
    )
    def test_the_learner_sees_what_the_environment_shows(self, problem):
        env = make(problem, horizon=40)
        played = rb.gym.play(env, "round-robin", seed=2)
        assert played.arms.shape == played.states.shape == played.rewards.shape == (40, problem.plays)
        record = played.agent.record
        assert record.slots == 40
        # The same actions again lead to the same sights.
        env.reset(seed=2)
        earned = 0.0
        for arms, states, rewards in zip(played.arms, played.states, played.rewards, strict=True):
            seen, *_, info = env.step(arms if problem.plays > 1 else arms[0])
            assert np.array_equal(info["states"][arms], states)
            assert np.array_equal(info["rewards"], rewards)
            earned += info.get("resting", 0.0)
        assert np.array_equal(record.last_state, seen["last_state"])
        assert np.array_equal(record.elapsed, seen["elapsed"])
        assert played.mean_reward == pytest.approx((played.rewards.sum() + earned) / 40)
        assert (problem is RESTING) == bool(played.resting.any())

    def test_same_seed_same_play(self):
        one, other, third = (rb.gym.play(make(), "ts-4", slots=80, seed=seed) for seed in (1, 1, 2))
        assert np.array_equal(one.arms, other.arms)
        assert np.array_equal(one.rewards, other.rewards)
        assert not np.array_equal(one.states, third.states)

    def test_faults(self):
        with pytest.raises(ProblemError, match="has no horizon; say how many slots"):
            rb.gym.play(make(horizon=None), "round-robin")
        with pytest.raises(ProblemError, match="slots is 0"):
            rb.gym.play(make(), "round-robin", slots=0)
        with pytest.raises(ProblemError, match="is not a restless bandit"):
            rb.gym.play(gymnasium.make("FrozenLake-v1"), "round-robin")


@pytest.mark.parametrize("spec", ["round-robin", "whittle"])
def test_learners_play_reacting_arms(spec):
    played = rb.gym.play(make(CONTROLLED), spec, slots=200, seed=1)
    assert played.agent.record.visits(0)[:2].sum() > 20


def test_render():
    env = make(UNKNOWN, render_mode="ansi")
    env.reset(seed=1)
    env.step(1)
    shown, states = env.render().splitlines(), env.step(2)[4]["states"]
    assert shown[0].startswith("slot 1, reward ")
    assert [line[0] for line in shown[1:]] == [" ", "*", " "]
    assert "never seen" in shown[1]
    assert env.render().splitlines()[3] == f"* arm 3  in state {states[2]}, seen in {states[2]} now"
    assert "1 slot ago" in env.render().splitlines()[2]


def test_observed_arms():
    """All states are observed: the observation is the present state of each arm, and random play earns its gain."""
    env = gymnasium.make(ID, problem="three-states", horizon=2000)
    observation, info = env.reset(seed=3)
    assert env.observation_space.contains(observation)
    policy = rb.solve(env.unwrapped.problem, "whittle").policy
    total = 0.0
    for _ in range(2000):
        states = observation["state"]
        observation, reward, _, truncated, info = env.step(np.array(policy(states)))
        assert (info["states"] == states).all()
        assert env.observation_space.contains(observation)
        total += reward
    assert truncated
    # The exact gain of five arms is 0.5766; the standard error of the mean of 2000 slots is about 0.003.
    assert total / 2000 == pytest.approx(rb.evaluate(env.unwrapped.problem, policy, simulate=True).gain, abs=0.03)
    with pytest.raises(rb.ProblemError, match="all states are observed; play a policy of the states"):
        rb.gym.play(env, "round-robin")


@pytest.mark.parametrize("name", ["circulant-4", "maintenance-observed", "conveyor-8"])
def test_instances_by_name(name):
    env = gymnasium.make(ID, problem=name, horizon=20)
    env.reset(seed=1)
    for _ in range(20):
        _, reward, _, truncated, _ = env.step(env.action_space.sample())
    assert truncated
    assert np.isfinite(reward)


def test_at_most_is_refused():
    problem = rb.Problem([rb.Arm.two_state(0.7, 0.8)], observed="all", at_most=True)
    with pytest.raises(rb.ProblemError, match="at_most"):
        gymnasium.make(ID, problem=problem)
