"""Logs of observed arms: rows by kind and by arm, what a log does not tell, tests, and values of other policies."""

import json

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import oracles
from restless_bandits.cli import main
from restless_bandits.logs.observed_checks import shared_chain_test
from restless_bandits.oracles.observed.rollout import simulated_gain

ROWS = np.array(
    [
        [[[0.7, 0.3], [0.2, 0.8]], [[0.9, 0.1], [0.6, 0.4]]],
        [[[0.9, 0.1], [0.4, 0.6]], [[0.95, 0.05], [0.5, 0.5]]],
    ]
)
"""Rows by kind, action and state."""
PAY = np.array([[1.0, 0.1], [0.8, 0.0]])
"""Mean rewards by action and state."""


def played(slots, arms, seed, rows=ROWS, pull=(0.1, 0.4), chains=None):
    """A log of arms of two kinds, each pulled with a probability of its state; ``chains`` change the rows by slot."""
    rng = np.random.default_rng(seed)
    kind = np.arange(arms) % len(rows)
    state, parts = rng.integers(0, rows.shape[-1], arms), []
    for slot in range(slots):
        chance = np.asarray(pull)[state]
        action = (rng.random(arms) < chance).astype(np.int64)
        reward = (rng.random(arms) < PAY[action, state]).astype(float)
        given = np.where(action == 1, chance, 1 - chance)
        parts.append((np.full(arms, slot), np.arange(arms), kind, state, action, reward, given))
        steps = (rows[kind] if chains is None else chains(slot, kind))[np.arange(arms), action, state].cumsum(axis=1)
        state = (rng.random(arms)[:, None] >= steps[:, :-1]).sum(axis=1)
    words = ("time", "arm", "kind", "state", "action", "reward", "probability")
    return dict(zip(words, map(np.concatenate, zip(*parts, strict=True)), strict=True))


def read(columns, **others):
    given = dict(columns) | others
    return rb.data.trace(given.pop("time"), given.pop("arm"), **given)


def truth(arms, plays):
    kinds = [
        rb.Arm(ROWS[k, 0], PAY[1], active_transitions=ROWS[k, 1], passive_rewards=PAY[0], count=arms // 2, name=f"{k}")
        for k in range(2)
    ]
    return rb.Problem(kinds, plays=plays, observed="all")


def test_rows_come_back_by_kind():
    # Twelve free entries leave five standard errors with a probability below 1e-5.
    trace = read(played(50, 60, 1))
    found = rb.data.fit(trace)
    assert trace.is_all_observed
    assert found.by == "kind"
    assert [arm.name for arm in found.arms] == ["0", "1"]
    for arm, rows in zip(found.arms, ROWS, strict=True):
        assert (np.abs(arm.transitions - rows[0]) < 5 * arm.standard_errors).all()
        assert (np.abs(arm.active_transitions - rows[1]) < 5 * arm.active_standard_errors).all()
        assert (np.abs(arm.group.rewards - PAY) <= 5 * arm.group.reward_errors).all()
        assert arm.active_standard_errors.max() < 0.05
    problem = found.problem
    assert (problem.observed, problem.n_arms, [kind.count for kind in problem.kinds]) == ("all", 60, [30, 30])
    assert rb.Problem.from_toml(problem.to_toml()) == problem
    # With the names of the log the fit is a table of arms.
    kinds = found.arm_kinds
    named = rb.Problem.from_table({"name": list(kinds), "kind": list(kinds.values())}, kinds=problem, plays=3)
    assert len(rb.rank(named, dict.fromkeys(kinds, 1))) == 3


def test_rows_are_shares_of_counts():
    columns = played(40, 4, 2)
    trace = read(columns)
    one = rb.data.fit(trace, by="arm").arms[3]
    mine = columns["arm"] == 3
    states, actions = columns["state"][mine], columns["action"][mine]
    for action, chain in enumerate((one.transitions, one.active_transitions)):
        for state in range(2):
            after = states[1:][(states[:-1] == state) & (actions[:-1] == action)]
            assert chain[state, 1] == pytest.approx((after.sum() + 1) / (len(after) + 2), abs=1e-12)
    pooled = rb.data.fit(trace, by="all").arms
    assert len(pooled) == 1
    assert pooled[0].group.counts.sum() == 39 * 4
    assert pooled[0].observations == 39 * 4


def test_a_row_that_was_never_seen_is_said_and_taken_from_the_other_action():
    columns = played(40, 40, 3, pull=(0.0, 0.3))
    found = rb.data.fit(read(columns))
    arm = found.arms[0]
    assert not arm.identified
    assert (arm.active_transitions[0] == arm.transitions[0]).all()
    assert np.isnan(arm.active_standard_errors[0]).all()
    assert np.isfinite(arm.active_standard_errors[1]).all()
    assert any("kind '0': after a pull in state 0 no step was logged" in note for note in found.notes)
    assert "NaN" not in json.dumps(rb.data.fit(read(columns)).problem.to_toml())


def test_pulls_of_a_few_arms_are_said_to_be_selective():
    columns = played(40, 120, 4)
    columns["action"] = np.where(columns["arm"] < 4, columns["action"], 0)
    columns.pop("probability")
    found = rb.data.fit(read(columns), tests=False)
    assert any("come from effectively 2.0 of 60 arms" in note for note in found.notes)
    assert not any("come from" in note for note in rb.data.fit(read(played(40, 120, 4)), tests=False).notes)


def test_arms_may_come_and_leave():
    columns = played(30, 6, 5)
    keep = (columns["arm"] != 1) | (columns["time"] >= 12)
    keep &= (columns["arm"] != 2) | (columns["time"] < 20)
    trace = read({word: column[keep] for word, column in columns.items()})
    found = rb.data.fit(trace, tests=False)
    assert trace.is_all_observed
    assert any("arms came or left" in note for note in found.notes)
    assert sum(arm.observations for arm in found.arms) == 4 * 29 + 17 + 19


def test_gaps_are_no_steps_where_all_is_said_to_be_observed():
    columns = played(30, 6, 6)
    keep = (columns["arm"] != 1) | (columns["time"] != 12)
    trace = read({word: column[keep] for word, column in columns.items()})
    assert not trace.is_all_observed
    found = rb.data.fit(trace, observed="all", tests=False)
    assert sum(arm.observations for arm in found.arms) == 6 * 29 - 2
    assert found.problem.observed == "all"
    assert rb.data.fit(trace, strict=False).problem.observed == "pulled"


def test_a_log_that_follows_the_model_is_not_rejected():
    """Of 60 logs three are rejected with a probability below 4e-5; p-values below 0.05 stay within five deviations."""
    rejected, small, made = 0, 0, 0
    for seed in range(60):
        tests = rb.data.fit(read(played(25, 40, 100 + seed))).tests
        rejected += any(test.rejects for test in tests)
        small += sum(test.p_value < 0.05 for test in tests)
        made += len(tests)
    assert made > 400
    assert rejected <= 2
    assert small <= 0.05 * made + 5 * (0.05 * made) ** 0.5


@pytest.mark.parametrize(("arms", "length"), [(4, 100), (200, 8)])
def test_arms_of_one_kind_with_few_or_many_steps_do_not_alarm(arms, length):
    # The number of an arm's steps from a row depends on its moves: a comparison of shares would alarm here.
    rng, small = np.random.default_rng(8), 0
    for _ in range(200):
        state, steps = np.zeros(arms, dtype=np.int64), []
        for _ in range(length):
            after = (rng.random(arms) < np.where(state == 0, 0.1, 0.5)).astype(np.int64)
            steps.append((state, np.arange(arms), after))
            state = after
        strata, who, after = map(np.concatenate, zip(*steps, strict=True))
        small += shared_chain_test(strata, who, after, 2)[0] < 0.05
    assert small <= 10 + 5 * 10**0.5


def test_each_violation_is_found():
    kinds = {
        "kind": read(played(60, 60, 7), kind=np.zeros(3600, dtype=int)),
        "drift": read(played(60, 60, 7, chains=lambda slot, kind: ROWS[(kind + (slot >= 30)) % 2])),
    }
    columns = played(60, 60, 9, pull=(0.0, 0.0))
    # Pulls that change nothing but the moves of later rests, and states that remember.
    rng = np.random.default_rng(1)
    arms, later = rng.random(60) < 0.5, ROWS[0, 0][:, 1]
    state, before, parts = np.zeros(60, dtype=np.int64), np.zeros(60, dtype=np.int64), []
    for _ in range(60):
        action = (arms & (rng.random(60) < 0.3)).astype(np.int64)
        parts.append((state, action))
        moved = (rng.random(60) < later[state] * np.where(arms, 0.4, 1.0)).astype(np.int64)
        state, before = moved, state
    columns["state"], columns["action"] = map(np.concatenate, zip(*parts, strict=True))
    for word in ("probability", "reward"):
        columns.pop(word)
    kinds["selection"] = read(columns, kind=np.zeros(3600, dtype=int))
    state, before, parts = np.zeros(60, dtype=np.int64), np.zeros(60, dtype=np.int64), []
    for _ in range(60):
        parts.append(state)
        state, before = (rng.random(60) < np.where(before == 1, 0.8, 0.3)).astype(np.int64), state
    columns["state"], columns["action"] = np.concatenate(parts), rng.integers(0, 2, 3600)
    kinds["memory"] = read(columns)
    for kind, trace in kinds.items():
        found = rb.data.fit(trace)
        assert kind in {test.kind for test in found.findings}, kind
        assert found.problem.findings.rejected


@pytest.mark.slow
def test_values_of_other_policies_hold():
    """Each interval of 95 % holds the true gain; fewer than 14 of 20 do so with a probability below 3e-4."""
    held = {"model": 0, "weights": 0, "lift": 0}
    for seed in range(20):
        columns = played(40, 60, 200 + seed)
        found = rb.data.evaluate_policy(read(columns), ["lp-index", "random"], draws=30)
        problem = truth(60, found.fit.problem.plays)
        gains = [
            simulated_gain(problem, oracles.policy("lp-index", found.fit.problem), 0.2)[0] / 60,
            random_gain(problem),
        ]
        for one, gain in zip(found.policies, gains, strict=True):
            low, high = one.model.interval
            held["model"] += low <= gain <= high
            assert one.weighted.gain is not None
            low, high = one.weighted.interval
            held["weights"] += low <= gain <= high
        low, high = found.policies[0].model.above_interval
        held["lift"] += low <= gains[0] - gains[1] <= high
    assert held["model"] >= 30
    assert held["weights"] >= 30
    assert held["lift"] >= 14


def random_gain(problem):
    """The gain of pulls at random by the stationary distributions of mixed rows."""
    share, total = problem.plays / problem.n_arms, 0.0
    for kind in problem.kinds:
        mixed = (1 - share) * kind.transitions + share * kind.active_transitions
        stay = np.linalg.matrix_power(mixed, 10_000)[0]
        total += kind.count * float(stay @ ((1 - share) * kind.passive_rewards + share * kind.rewards))
    return total / problem.n_arms


def test_no_number_has_a_reason():
    columns = played(20, 40, 11)
    plain = rb.data.evaluate_policy(read(columns, probability=None), ["lp-index"], draws=10)
    assert "no column probability" in plain.policies[0].weighted.reason
    assert plain.as_dict()["policies"][0]["weighting"]["reward_mean"] is None
    wrong = rb.data.evaluate_policy(read(columns, probability=0.7 * columns["probability"]), ["myopic"], draws=10)
    assert "are not those of the actions" in wrong.policies[0].weighted.reason
    joint = rb.data.evaluate_policy(read(columns), ["lp-update"], draws=10)
    assert "acts on all arms together" in joint.policies[0].weighted.reason
    few = {word: column[columns["arm"] < 10] for word, column in columns.items()}
    assert "10 arms are too few" in rb.data.evaluate_policy(read(few), ["random"], draws=10).policies[0].weighted.reason
    with pytest.raises(rb.ProblemError, match="simulate a learner on the fitted problem"):
        rb.data.evaluate_policy(read(columns), ["likelihood-ucb"], draws=10)


def test_kinds_of_a_log(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("time,arm,kind,state,action\n0,a,x,0,1\n1,a,y,1,0\n")
    with pytest.raises(rb.ProblemError, match=r"line 3: arm 'a' is of kind 'y' here and of kind 'x' elsewhere"):
        rb.data.read_trace(path)
    path.write_text("time,arm,kind,state\n0,a,x,0\n1,a,x,1\n")
    assert rb.data.read_trace(path).kinds is None
    with pytest.raises(rb.ProblemError, match="kinds are for logs with actions"):
        rb.data.read_trace(path, columns={"kind": "kind"})
    with pytest.raises(rb.ProblemError, match="observed and by have no meaning"):
        rb.data.fit(rb.data.read_trace(path), by="kind")
    trace = read(played(20, 4, 12), kind=None)
    assert rb.data.fit(trace, tests=False).by == "arm"
    with pytest.raises(rb.ProblemError, match="no column kind; name it"):
        rb.data.fit(trace, by="kind")


def test_the_commands(tmp_path, monkeypatch, capsys):
    columns = played(30, 40, 13)
    lines = [",".join(map(str, line)) for line in zip(*columns.values(), strict=True)]
    log, page, toml = (str(tmp_path / name) for name in ("log.csv", "fit.html", "p.toml"))
    (tmp_path / "log.csv").write_text("\n".join([",".join(columns), *lines]))

    def run(*words):
        monkeypatch.setattr("sys.argv", ["restless", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
        return capsys.readouterr().out

    shown = run("fit", log, "--out", toml, "--report", page)
    assert "kind '0': 600 observations, 20 arms, 580 steps, rewards bernoulli" in shown
    assert rb.Problem.load(toml).observed == "all"
    text = (tmp_path / "fit.html").read_text()
    assert all(word in text for word in ("What policies could earn", "lp-index", "over random", "Rest and pull"))
    told = json.loads(run("fit", log, "--by", "all", "--json"))
    assert (told["by"], told["arms"][0]["arms"]) == ("all", 40)
    shown = run("evaluate", log, "--draws", "10", "--by", "kind")
    assert "40 arms, all observed" in shown
    assert "by weighting assumes" in shown
    told = json.loads(run("evaluate", log, "--policy", "random", "--draws", "10", "--json"))
    assert told["policies"][0]["weighting"]["effective_pulls"] > 200
