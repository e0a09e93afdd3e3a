"""Agents made from names alone, costs in place of rewards, states by name, and arms that take over what others have."""

import json

import pytest

import restless_bandits as rb
from restless_bandits.model.problem import warn_of_rising_rewards

ARMS = {"arms": ["a", "b", "c"], "n_states": 3, "state_names": ["idle", "busy", "down"]}
CHAIN = [[0.9, 0.1, 0], [0.1, 0.8, 0.1], [0, 0.2, 0.8]]


def made(**more):
    return rb.Agent("round-robin", **ARMS, cost_range=(0, 2000), seed=1, **more)


def test_an_agent_of_names(tmp_path):
    agent = made()
    for slot in range(12):
        assert agent.ask_one() == agent.ask()
        agent.tell(state="busy" if slot % 2 else 0, cost=120 if slot % 2 else 40)
    assert agent.arms == ("a", "b", "c")
    assert agent.record.reward_sums(0).tolist() == [-80.0, -240.0, 0.0]
    assert agent.estimate().arms[0].rewards[:2].tolist() == [-40.0, -120.0]
    assert [len(belief) for belief in agent.belief()] == [3, 3, 3]
    assert agent.add_arm("d") == 3
    assert agent.task.reward_ranges[3] == (-2000.0, 0.0)
    assert agent.task.reward_laws[3] == "bounded"
    assert agent.task.state_names[3] == ("idle", "busy", "down")
    agent.save(tmp_path / "agent.json")
    again = rb.Agent.load(tmp_path / "agent.json")
    assert (again.ask(), again.task) == (agent.ask(), agent.task)


def test_histories_replay_names_and_added_arms(tmp_path):
    agent = made(history=tmp_path / "history.jsonl")
    agent.ask()
    agent.tell("down", cost=900)
    agent.add_arm("d", n_states=2)
    agent.ask()
    again = rb.Agent.replay(tmp_path / "history.jsonl")
    assert again.to_dict() == agent.to_dict()
    assert agent.task.state_names[3] == ("0", "1")


def test_tasks_without_names_are_stored_as_before():
    stored = rb.Agent("ucb1", rb.Problem.builtin("paper-1").task()).to_dict()["task"]
    assert not {"state_names", "in_costs"} & stored.keys()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "an agent needs arms"),
        ({"arms": "abc"}, "arms is 'abc'; give a list of names"),
        ({"arms": ["a"], "task": rb.Problem.builtin("paper-1").task()}, "task and arms are given"),
        ({"task": rb.Problem.builtin("paper-1").task(), "n_states": 2}, "n_states is for an agent made with arms="),
        ({"arms": ["a", "a"]}, "two arms are called 'a'"),
        ({"arms": ["a"], "state_names": ["x"]}, "give a name for each of 2 states"),
        ({"arms": [{"name": "a", "states": 3}]}, "arm 'a' has no field 'states'"),
        ({"arms": ["a"], "reward_range": (0, 1), "cost_range": (0, 1)}, "give one of the two"),
    ],
)
def test_refusals(given, said):
    with pytest.raises(rb.ProblemError, match=said):
        rb.Agent("ucb1", **given)


def test_feedback_in_words_and_costs_is_checked():
    agent = made()
    agent.ask()
    with pytest.raises(rb.ProblemError, match="has no state 'dwn'; did you mean 'down'"):
        agent.tell("dwn", cost=1)
    with pytest.raises(rb.ProblemError, match=r"cost 3000\.0 is not between 0 and 2000"):
        agent.tell("down", cost=3000)
    with pytest.raises(rb.ProblemError, match="reward and cost are given"):
        agent.tell("down", 1, cost=3)
    with pytest.raises(rb.ProblemError, match="its states have no names; give the number"):
        rb.Agent(rb.Problem.builtin("paper-1").task()).tell("idle", 1.0, arm=0)


def test_a_task_first_and_the_default_learner():
    task = rb.Problem.builtin("paper-1").task()
    assert rb.Agent(task).learner == rb.default_learner(task)
    assert rb.Agent(rb.Problem.builtin("collapsing").task()).learner == rb.learner("posterior")
    with pytest.raises(rb.ProblemError, match="2 arms are pulled"):
        rb.Agent("round-robin", arms=["a", "b", "c"], plays=2).ask_one()


def test_a_range_without_a_law_is_bounded():
    assert rb.Agent(arms=["a"], reward_range=(0, 54)).task.reward_laws == ("bounded",)
    assert rb.Agent(arms=["a"]).task.reward_laws == ("bernoulli",)
    with pytest.warns(RuntimeWarning, match="a beta distribution of spread 0.5 is taken; give reward_law"):
        arm = rb.Arm.two_state(0.9, 0.8, rewards=(40, 6), reward_range=(0, 54))
    assert (arm.reward_law, arm.reward_spread) == ("beta", 0.5)
    assert rb.Arm.two_state(0.9, 0.8, rewards=(54, 0), reward_range=(0, 54)).reward_law == "bernoulli"


class TestCosts:
    arm = rb.Arm(CHAIN, costs=[40, 120, 900], cost_range=(0, 2000), reward_law="fixed", name="x", initial=0)
    problem = rb.Problem([arm, arm.named("y")])

    def test_are_negative_rewards(self):
        twin = rb.Arm(CHAIN, [-40, -120, -900], reward_range=(-2000, 0), reward_law="fixed", name="x", initial=0)
        assert self.problem.content == rb.Problem([twin, twin.named("y")]).content
        assert eval(repr(self.arm), {"Arm": rb.Arm}) == self.arm
        assert "costs=[40.0, 120.0, 900.0]" in repr(self.arm)

    def test_files_keep_costs(self):
        text = self.problem.to_toml()
        again = rb.Problem.from_toml(text)
        assert "costs = [40.0, 120.0, 900.0]" in text
        assert "rewards" not in text
        assert (again, again.in_costs, again.content) == (self.problem, True, self.problem.content)
        changed = rb.Problem(
            [rb.Arm.two_state(0.9, 0.8, costs=(0.1, 0.8))], changes=[rb.Change(5, 0, costs=[0.3, 0.9])]
        )
        assert rb.Problem.from_toml(changed.to_toml()) == changed
        assert "costs = [0.3, 0.9]" in changed.to_toml()

    def test_are_shown(self):
        found = rb.oracles.best_arm(self.problem)
        assert found.gain < 0 < found.as_dict()["cost"]
        assert "<Solution by best-arm: cost " in repr(found)
        assert "least cost" in repr(found)
        assert json.dumps(found.as_dict()["cost_lower"])
        assert found.as_dict()["cost_lower"] == -found.upper
        assert "mean costs" in self.problem._repr_html_()

    @pytest.mark.parametrize(
        ("given", "said"),
        [
            ({"costs": [40, 10]}, r"costs lie beyond 0 to 1; give a cost_range, such as \(0, 80\)"),
            ({"costs": [0, 1], "rewards": [1, 0]}, "costs and rewards are given"),
            ({"costs": [0, 1], "reward_range": (0, 1)}, "give cost_range instead"),
            ({"rewards": [1, 0], "cost_range": (0, 1)}, "cost_range is given without costs"),
            ({}, "rewards are missing; give mean rewards by state, or costs"),
        ],
    )
    def test_refusals(self, given, said):
        with pytest.raises(rb.ProblemError, match=said):
            rb.Arm([[0.9, 0.1], [0.2, 0.8]], **given)
        with pytest.raises(rb.ProblemError, match="arm 'x' has costs and arm 'y' has rewards"):
            rb.Problem([self.arm, rb.Arm.two_state(0.5, 0.5, name="y")])

    def test_rising_rewards_are_said(self):
        rising = rb.Arm(CHAIN, [40, 120, 900], reward_range=(0, 2000), reward_law="fixed", name="x")
        with pytest.warns(RuntimeWarning, match=r"rewards rise with the state.* write costs=\(40.0, 120.0, 900.0\)"):
            warn_of_rising_rewards(rb.Problem([rising]))
        warn_of_rising_rewards(self.problem)


def test_a_file_without_a_law_says_what_it_means():
    text = "[[arms]]\nrewards = [40.0, 6.0]\nreward_range = [0, 54]\ntransitions = [[0.9, 0.1], [0.2, 0.8]]\n"
    with pytest.warns(RuntimeWarning, match="every reward is one of the two ends of reward_range"):
        assert rb.Problem.from_toml(text).arms[0].reward_law == "bernoulli"
