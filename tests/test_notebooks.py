"""What a notebook shows: short texts and HTML tables of everything that calls return."""

import re

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.model.record import Record


@pytest.fixture(scope="module")
def shown():
    problem = rb.Problem([rb.Arm([[0.7, 0.3], [0.2, 0.8]], [1, 0], name="<b>&"), rb.Arm.two_state(0.5, 0.6)])
    agent = rb.Agent("likelihood-ucb", problem.task(), seed=1)
    rng = np.random.default_rng(0)
    for _ in range(60):
        agent.ask()
        state = int(rng.integers(2))
        agent.tell(state, float(1 - state))
    trace = rb.data.trace(np.arange(40), ["x"] * 40, state=rng.integers(0, 2, 40))
    solution = rb.oracles.whittle(problem)
    return {
        "Problem": problem,
        "Solution": solution,
        "SimulationResult": rb.simulate(problem, "round-robin", 50, runs=2),
        "Agent": agent,
        "Record": agent.record,
        "Estimate": rb.estimate(agent.record, strict=False),
        "Fit": rb.data.fit(trace, strict=False, tests=False),
        "IndexPolicy": solution.policy,
        "JointPolicy": rb.oracles.exact(problem).policy,
        "PriorityPolicy": rb.oracles.policy("lp-index", rb.Problem.random_reacting(5, seed=0)),
    }


def test_short_texts_and_tables(shown):
    for name, one in shown.items():
        text, table = repr(one), one._repr_html_()
        assert re.fullmatch(rf"<{name}\b.{{1,700}}>", text, re.DOTALL), text
        assert re.match(r"<p>(?!.*<b>&)", table.replace("<p><b>", "<p>")), table
        assert re.sub(r"</?(p|b|table|thead|tbody|tr|th|td)>", "", table).count("<") == 0
    assert "&lt;b&gt;&amp;" in shown["Problem"]._repr_html_()
    assert "&lt;b&gt;&amp;" in shown["Agent"]._repr_html_()
    assert "60 slots" in repr(shown["Agent"])
    assert "60 observations" in repr(shown["Record"])


def test_a_table_counts_the_rows_it_leaves_out():
    assert "and 5 more" in Record((2,) * 25, (None,) * 25)._repr_html_()


def test_a_problem_by_its_name_or_path(tmp_path):
    path = tmp_path / "mine.toml"
    rb.Problem.builtin("paper-1").save(path)
    by_name, by_path = rb.solve("paper-1"), rb.oracles.exact(path)
    assert by_name.gain == by_path.gain
    assert rb.simulate(str(path), "round-robin", 1e2, runs=1).horizon == 100
    assert rb.oracles.relaxation_bound("paper-1") >= by_name.lower
    assert rb.evaluate("paper-1", by_name.policy).gain == pytest.approx(by_name.gain)
    assert rb.walk("paper-1", "round-robin", 5).problem == rb.check("paper-1").problem
    for call in (rb.solve, rb.oracles.whittle, rb.check, rb.oracles.auto):
        with pytest.raises(rb.ProblemError, match="did you mean 'paper-1'"):
            call("papr-1")
        with pytest.raises(rb.ProblemError, match="problem is 3; give a Problem, the name of"):
            call(3)


def test_whole_numbers_and_names_in_any_case():
    assert rb.Problem.builtin("paper-1").task(horizon=1e4).horizon == 10_000
    with pytest.raises(rb.ProblemError, match=r"runs is 1\.5; it must be"):
        rb.simulate("paper-1", "ucb1", 10, runs=1.5)
    with pytest.raises(rb.ProblemError, match="did you mean 'ucb1'"):
        rb.learner("UCB1")
    with pytest.raises(rb.ProblemError, match="whittle needs to be told problem"):
        rb.Agent("whittle", rb.Problem.builtin("paper-1").task())


def test_words_of_other_packages():
    with pytest.raises(rb.ProblemError, match=r"'P0'; take transitions, the chain without a pull \(docs/how-to/rea"):
        rb.Arm(P0=[[1.0]], P1=[[1.0]], rewards=[1.0])
    with pytest.raises(rb.ProblemError, match="no argument 'passive'; take transitions"):
        rb.Arm(passive=[[1.0]], rewards=[1.0])
    with pytest.raises(rb.ProblemError, match="no argument 'reward_rnge'; did you mean 'reward_range'"):
        rb.Arm([[1.0]], [1.0], reward_rnge=(0, 1))
    with pytest.raises(rb.ProblemError, match=r"a stack of 2 matrices; .* active_transitions .*reacting-arms"):
        rb.Arm([[[1.0]], [[1.0]]], [1.0])
