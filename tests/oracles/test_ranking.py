"""The list of arms to pull next agrees with the policy, by number and by name."""

import numpy as np
import pytest

from restless_bandits import Problem, ProblemError, rank
from restless_bandits.oracles import arms_of_policy
from restless_bandits.oracles.observed.planners import observed_policy
from tests.optional import needed


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    chains = rng.dirichlet(np.ones(3), (20, 3, 2))
    names = [f"q{i}" for i in range(20)]
    return Problem.from_arrays(chains, rng.random((20, 3, 2)), plays=4, names=names, count=[1] * 19 + [10])


@pytest.mark.parametrize("oracle", ["lp-index", "whittle", "myopic"])
def test_the_policy_pulls_the_ranked_arms(problem, oracle):
    rng, policy = np.random.default_rng(1), observed_policy(problem, oracle)
    for _ in range(10):
        states = rng.integers(0, 3, problem.n_arms)
        found = rank(problem, states, oracle=oracle)
        assert tuple(sorted(found.arms.tolist())) == policy(states)
        assert (np.diff(found.scores) <= 1e-9).all()
        assert found.names == tuple(problem.arms[arm].name for arm in found.arms)
        assert found.states.tolist() == states[found.arms].tolist()


def test_names_plays_and_exclusions(problem):
    states = {name: i % 3 for i, name in enumerate(problem.names)}
    first = rank(problem, states)
    assert rank(problem, list(states.values())).names == first.names
    others = {name: state for name, state in states.items() if name != first.names[0]}
    without = rank(problem, others, exclude=first.names[:1])
    assert without.names[:3] == first.names[1:4]
    by_number = rank(problem, states, exclude=[int(first.arms[0])])
    assert by_number.names == without.names
    more = rank(problem, states, plays=29)
    assert sorted(more.names) == sorted(problem.names)
    assert "q19-05" in more.names
    assert more.to_csv().splitlines()[0] == "rank,name,state,index"


def test_states_in_a_table(problem, tmp_path):
    pandas, pyarrow = needed("pandas"), needed("pyarrow")
    names, states = list(problem.names), [i % 3 for i in range(29)]
    expected = rank(problem, states).names
    frame = pandas.DataFrame({"name": names[::-1], "state": states[::-1]})
    path = tmp_path / "states.csv"
    frame.to_csv(path)
    table = pyarrow.table({"name": names, "state": states})
    for given in (frame, path, table, table.to_reader(), table["state"], frame["state"].iloc[::-1]):
        assert rank(problem, given).names == expected


def test_few_names_in_a_message():
    chains = np.full((3000, 2, 2, 2), 0.5)
    problem = Problem.from_arrays(chains, [0, 1], names=[f"patient {i}" for i in range(3000)], plays=1)
    with pytest.raises(ProblemError, match=r"there is no arm 'xyz'; choose from patient 0, .*, …$") as error:
        rank(problem, [0] * 3000, exclude=["xyz"])
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("oracle", ["lp-index", "id", "lp-update", "exact", "best-arm"])
def test_the_arms_of_a_policy(problem, oracle):
    small = problem.only([0, 1, 2, 3, 4], plays=2)
    policy, states = observed_policy(small, oracle), [2, 0, 1, 1, 0]
    found = arms_of_policy(small, policy, states)
    if oracle != "id":
        assert tuple(sorted(found.arms.tolist())) == policy(states)
    assert arms_of_policy(small, policy, states).names == found.names
    score = policy.score if oracle in ("lp-index", "best-arm") else observed_policy(small, "lp-index").score
    assert found.scores.tolist() == [score[3 * arm + states[arm]] for arm in found.arms]
    assert found.scores[0] >= found.scores[1]


def test_the_arms_of_a_policy_before_any_state_is_known(problem):
    policy = observed_policy(problem, "whittle")
    start = np.concatenate([group.start for group in problem.groups])
    expected = np.repeat((start * policy.score.reshape(-1, 3)).sum(axis=1), problem.kind_counts)
    found = arms_of_policy(problem, policy)
    assert found.states is None
    assert found.arms.tolist() == np.argsort(-expected, kind="stable")[:4].tolist()
    assert found.scores == pytest.approx(expected[found.arms])
    with pytest.raises(ProblemError, match="listed where all states are observed"):
        arms_of_policy(problem, Problem.builtin("paper-1"))


def test_fewer_arms_may_be_pulled():
    chains = np.full((5, 2, 2, 2), 0.5)
    rewards = np.zeros((5, 2, 2))
    rewards[:, :, 1] = [-1.0, 0.5]
    problem = Problem.from_arrays(chains, rewards, reward_axes="nsa", plays=4, at_most=True)
    assert rank(problem, [0, 1, 0, 1, 0]).arms.tolist() == [1, 3]


def test_mistakes(problem):
    states = [0] * 29
    for sentence, given in [
        ("give the state of each of 29 arms", {"states": [0]}),
        ("there is no arm 'x'", {"states": {"x": 1}}),
        ("the state of q3 is 1.5", {"states": {"q3": 1.5}}),
        ("exclude is 'q1'; give a list of names", {"states": states, "exclude": "q1"}),
        ("an arm is 29; it must be", {"states": states, "exclude": [29]}),
        ("a ranking takes lp-index, whittle or myopic", {"states": states, "oracle": "id"}),
        ("plays is 30; it must be", {"states": states, "plays": 30}),
    ]:
        with pytest.raises(ProblemError) as error:
            rank(problem, **given)
        assert sentence in str(error.value)
