"""Logs with actions: fits of arms that react, and refusals where one chain is assumed."""

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.cli import main

PASSIVE = np.array([[[0.9, 0.1], [0.3, 0.7]], [[0.6, 0.4], [0.2, 0.8]]])
ACTIVE = np.array([[[0.3, 0.7], [0.1, 0.9]], [[0.8, 0.2], [0.7, 0.3]]])


def columns(slots, seed, rests_seen=False, lost=0.0):
    """A log of two arms, one of them pulled in each slot; rests without a state have lines or not."""
    rng, states, lines = np.random.default_rng(seed), [0, 0], []
    for slot in range(slots):
        pulled = int(rng.random() < 0.5)
        for arm in range(2):
            action = int(arm == pulled)
            seen = rests_seen or (action and rng.random() >= lost)
            lines.append((slot, "ab"[arm], float(states[arm]) if seen else np.nan, action))
            chain = (PASSIVE, ACTIVE)[action][arm]
            states[arm] = int(rng.random() >= chain[states[arm], 0])
    return {name: [line[k] for line in lines] for k, name in enumerate(("time", "arm", "state", "action"))}


@pytest.mark.parametrize("options", [{}, {"rests_seen": True}, {"lost": 0.3}])
def test_both_chains_come_back_from_a_log(options):
    # Sixteen free entries leave five standard errors with a probability below 1e-5 in all three cases together.
    trace = rb.data.read_trace(columns(4000, 1, **options))
    found = rb.data.fit(trace)
    for arm, passive, active in zip(found.arms, PASSIVE, ACTIVE, strict=True):
        assert arm.identified
        assert (np.abs(arm.transitions - passive) < 5 * arm.standard_errors).all()
        assert (np.abs(arm.active_transitions - active) < 5 * arm.active_standard_errors).all()
        assert max(arm.standard_errors.max(), arm.active_standard_errors.max()) < 0.1
        assert arm.as_dict()["active_transitions"] is arm.active_transitions
    problem = found.problem
    assert problem.reacts
    assert problem.plays == 1
    assert problem.observed == ("all" if "rests_seen" in options else "pulled")
    assert any("pay nothing" in note for note in found.notes) == ("rests_seen" not in options)
    # Rewards follow from states, and are paid at rest where the log has states at rest.
    assert ("passive_rewards" in problem.features) == ("rests_seen" in options)


def test_counts_of_a_complete_log_are_the_rows():
    # All states seen: both chains are shares of counts with one pseudo-count each.
    trace = rb.data.read_trace(columns(300, 2, rests_seen=True))
    arm = rb.data.fit(trace).arms[0]
    _, states, _ = trace.of_arm(0)
    actions, unseen = trace.pulls_of_arm(0)
    assert not unseen.size
    for action, chain in enumerate((arm.transitions, arm.active_transitions)):
        for s in range(2):
            after = states[1:][(states[:-1] == s) & (actions[:-1] == action)]
            assert chain[s, 1] == pytest.approx((after.sum() + 1) / (len(after) + 2), abs=1e-4)


def test_no_pair_of_observations_spans_an_unseen_pull():
    given = {"time": [0, 1, 2, 3, 5], "arm": ["a"] * 5, "state": [0, 1, None, 0, 1], "action": [1] * 5}
    trace = rb.data.read_trace(given)
    assert [part.tolist() for part in trace.unseen] == [[2], [0]]
    arm = rb.data.fit(trace, strict=False).arms[0]
    assert (arm.observations, arm.unused, arm.steps) == (2, 1, 1)
    assert not arm.identified
    with pytest.raises(rb.NotIdentified, match=r"arm 'a': .* is not identified"):
        rb.data.fit(trace)


def test_other_actions_are_refused_by_line(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,arm,state,action\n0,a,0,1\n1,a,1,2\n")
    with pytest.raises(rb.ProblemError, match=r"line 3: action is 2; give 1 for a pull and 0 for a rest, or rename"):
        rb.data.read_trace(path)
    path.write_text("time,arm,value,action\n0,a,0.5,1\n0,a,0.7,1\n1,a,1,1\n")
    with pytest.raises(rb.ProblemError, match="an arm is pulled or rests in a slot"):
        rb.data.read_trace(path, duplicates="mean")


def test_what_assumes_one_chain_refuses_a_log_with_actions():
    trace = rb.data.read_trace(columns(400, 3, rests_seen=True))
    with pytest.raises(rb.ProblemError, match="states that these pulls would have made; fit the log, and simulate"):
        rb.data.replay(trace, ["round-robin"])
    with pytest.raises(rb.ProblemError, match="leave the season out"):
        rb.data.fit_season(trace, 10)
    pulled = rb.data.read_trace(columns(400, 3))
    with pytest.raises(rb.ProblemError, match="states that these pulls would have made; fit the log, and evaluate"):
        rb.data.evaluate_policy(pulled, ["best-arm"])
    with pytest.raises(rb.ProblemError, match="leave --report out"):
        rb.data.report(rb.data.fit(pulled))


def test_the_command_shows_both_chains(tmp_path, monkeypatch, capsys):
    lines = zip(*columns(400, 4).values(), strict=True)
    cells = (",".join("" if cell != cell else str(cell) for cell in line) for line in lines)
    (tmp_path / "log.csv").write_text("\n".join(["time,arm,state,action", *cells]))
    monkeypatch.setattr("sys.argv", ["restless", "fit", str(tmp_path / "log.csv"), "--out", str(tmp_path / "p.toml")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    assert capsys.readouterr().out.count("the same after a pull:") == 2
    assert rb.Problem.load(tmp_path / "p.toml").reacts
