"""``restless fit`` and ``restless replay``: their JSON, their words, the files they write."""

import json

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits._internal import progress
from tests.logs.logs import THREE, paths


@pytest.fixture
def trace(write):
    states = paths(THREE, 400, seed=14)
    lines = [f"{60 * t},{name},{9.5 - 2 * states[t, i]}" for t in range(400) for i, name in enumerate("ab")]
    return write("\n".join(["time,arm,value", *lines]))


def test_fit(restless, trace, tmp_path):
    out, plot = tmp_path / "found.toml", tmp_path / "fit.png"
    words = ["fit", trace, "--slot", 60, "--edges", "7,9", "--rewards", "1,0.4,0", "--lags", "1,3"]
    code, text, err = restless(*words, "--out", out, "--plot", plot, "--json")
    assert (code, err) == (0, "")
    found = json.loads(text)
    expected = rb.data.fit(rb.data.read_trace(trace, slot=60, edges=[7, 9], rewards=[1, 0.4, 0]), lags=[1, 3])
    fields = (
        "trace problem shape observations first_slot last_slot states edges reward_range arms notes tests fit "
        "out plot report"
    )
    assert list(found) == fields.split()
    assert [found[key] for key in ("trace", "problem", "shape", "observations", "states", "edges")] == [
        "trace.csv", "trace", "birth-death", 800, 3, [9.0, 7.0]
    ]  # fmt: skip
    arm = found["arms"][0]
    of_arm = (
        "name states observations transitions standard_errors rewards reward_errors reward_law reward_spread "
        "stationary steps jumps jump_share unused identified selective modes laws"
    )
    assert list(arm) == of_arm.split()
    assert arm["transitions"] == expected.arms[0].transitions.tolist()
    assert (arm["rewards"], arm["reward_law"], arm["steps"]) == ([1.0, 0.4, 0.0], "fixed", 399)
    assert list(arm["modes"][0]) == ["transitions", "standard_errors", "log_posterior"]
    of_law = "tau pairs observed predicted same_observed same_predicted same_error chi_square degrees p_value"
    assert [list(distribution) for distribution in arm["laws"]] == [of_law.split()] * 2
    assert [distribution["tau"] for distribution in arm["laws"]] == [1, 3]
    assert rb.load_problem(out) == expected.problem
    assert plot.read_bytes()[:4] == b"\x89PNG"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.png", "found.toml", "trace.csv"]

    code, text, err = restless(*words, "--shape", "free")
    assert (code, err) == (0, "")
    assert "400 observations" in text


def clock(path):
    """Two arms that change state every five slots, one look in ten at random: no chain does that."""
    rng = np.random.default_rng(10)
    lines = ["time,arm,state"]
    for name in ("x [a]", "y"):
        states = np.where(rng.random(1000) < 0.1, rng.integers(0, 2, 1000), np.arange(1000) // 5 % 2)
        lines += [f"{t},{name},{state}" for t, state in enumerate(states)]
    path.write_text("\n".join(lines))
    return path


def test_a_rejected_problem_says_so_wherever_it_is_used(restless, tmp_path):
    log, problem, result = clock(tmp_path / "clock.csv"), tmp_path / "clock.toml", tmp_path / "result.npz"
    code, text, _ = restless("fit", log, "--out", problem, "--json")
    assert code == 0
    why = json.loads(text)["fit"]["rejected"]
    found = json.loads(text)["fit"]["findings"]
    assert "arm 'x [a]'" in found[0]
    assert why == f"{found[0]} ({len(found) - 1} more findings)"
    assert problem.read_text().count("[fit]") == 1
    commands = {
        "certified for": ["solve", problem],
        "solved for": ["solve", problem, "--oracle", "myopic"],
        "checked for": ["check", problem],
        "simulated in": ["simulate", problem, "--horizon", 50, "--runs", 2, "--learner", "round-robin", "--jobs", 1],
    }
    for done, words in commands.items():
        code, text, _ = restless(*words)
        assert code == 0
        assert f"{done} a model that its log rejects: {why}" in text.splitlines()
        code, text, _ = restless(*words, "--json")
        assert json.loads(text)["fit"] == {"rejected": why, "findings": found}

    read = rb.load_problem(problem)
    assert read.findings == rb.Findings(rejected=why, findings=found)
    assert "rejected by its log" in repr(read)
    assert f"certified for a model that its log rejects: {why}" in repr(rb.oracles.exact(read))
    played = rb.simulate(read, "round-robin", 50, runs=1, jobs=1)
    played.save(result)
    assert f"simulated in a model that its log rejects: {why}" in repr(rb.SimulationResult.load(result))


def test_a_problem_that_fits_has_nothing_to_say(restless, trace, tmp_path):
    out = tmp_path / "found.toml"
    restless("fit", trace, "--slot", 60, "--edges", "7,9", "--out", out)
    assert "[fit]" not in out.read_text()
    code, text, _ = restless("solve", out)
    assert (code, "rejects" in text) == (0, False)
    assert json.loads(restless("solve", out, "--json")[1])["fit"] == {"rejected": None, "findings": []}


def test_replay(restless, trace):
    words = ["replay", trace, "--slot", 60, "--states", 3, "--from", 10, "--to", 209, "--horizon", 150]
    learners = ["--learner", "round-robin", "--learner", "myopic"]
    code, text, err = restless(*words, *learners, "--json")
    assert (code, err) == (0, "")
    found = json.loads(text)
    fields = (
        "trace first_slot last_slot slots used missing closed skipped incomplete without_choice seed arms best_arm "
        "best_order random_arm hindsight learners"
    )
    assert list(found) == fields.split()
    assert [found[key] for key in ("first_slot", "last_slot", "slots")] == [10, 159, 150]
    one = found["learners"][0]
    of_learner = (
        "spec runs reward_total_mean reward_total_stderr reward_totals reward_mean above_best_arm "
        "share_of_hindsight pulls_mean lost_mean"
    )
    assert list(one) == of_learner.split()
    assert (one["spec"], one["runs"], one["pulls_mean"]) == ("round-robin", 1, [75.0, 75.0])
    rewards = 1 - paths(THREE, 400, seed=14)[10:160] / 2
    assert found["hindsight"]["reward_total"] == rewards.max(axis=1).sum()
    assert found["best_arm"]["reward_total"] == rewards.sum(axis=0).max()
    assert [arm["reward_total"] for arm in found["arms"]] == rewards.sum(axis=0).tolist()
    assert one["above_best_arm"] == one["reward_total_mean"] - rewards.sum(axis=0).max()
    code, text, _ = restless(*words, *learners)
    assert code == 0
    assert "best fixed arm" in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--edges", "7,x"], "--edges is '7,x'; give numbers separated by commas"),
        (["--reward-range", "1"], "--reward-range is '1'; give the lowest and the highest reward"),
        (["--lags", str(10**21)], "it must be a positive whole number and below 2^62"),
        (["--lags", "1,two"], "--lags is '1,two'; give whole numbers separated by commas"),
        (["--plot", "fit.gif"], "cannot draw fit.gif; give a name that ends in .png, .svg, .pdf"),
        (["--out", "nowhere/found.toml"], "there is no folder nowhere; make it first"),
        (["--shape", "line"], "there is no shape 'line'"),
    ],
)
def test_bad_words(restless, trace, words, message):
    code, text, err = restless("fit", trace, "--slot", 60, *words)
    assert (code, text) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_outputs_do_not_replace_the_log_or_each_other(restless, trace, tmp_path):
    before = trace.read_bytes()
    link = tmp_path / "link.png"
    link.symlink_to(trace)
    same = tmp_path / "same.png"
    for words, message in (
        (["--out", trace], "--out is {}, which is the trace itself; name another file"),
        (["--plot", link], "--plot is {}, which is the trace itself; name another file"),
        (["--plot", same, "--out", same], "--out and --plot are both {}; name two files"),
    ):
        code, text, err = restless("fit", trace, *words)
        assert (code, text) == (2, "")
        assert message.format(words[1]) in err
    assert trace.read_bytes() == before
    assert not same.exists()


def test_refusals_write_nothing(restless, write, tmp_path):
    path = write("time,arm,state\n0,a,0\n1,a,1\n")
    code, text, err = restless("fit", path, "--out", tmp_path / "found.toml")
    assert (code, text) == (2, "")
    assert err == (
        "Error: arm 'a' was never seen again after state 1, so the moves from there are not known; log more, or "
        "use fewer states\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_what_takes_long_is_told_at_once(restless, trace, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_ESTIMATE_SECONDS", -1.0)
    monkeypatch.setattr(progress, "LONG_SECONDS", 0.0)
    read = [trace, "--slot", 60, "--edges", "7,9", "--json"]
    fitted, played = restless("fit", *read), restless("replay", *read, "--learner", "restless-ucb")
    for (code, out, err), what in ((fitted, ": fit of 2 arms\n"), (played, ": restless-ucb in 400 slots\n")):
        assert code == 0
        assert json.loads(out)
        assert err.count("this will take about ") == 1
        assert err.endswith(what)
    # Two arms of three states; m is 55 of 400 slots and 22 of 100.
    assert "explore" not in played[2]
    short = restless("replay", *read, "--learner", "restless-ucb", "--horizon", 100)[2]
    assert short.startswith("restless-ucb will explore all the 100 slots: it needs at least 132 before")


def test_a_season_on_the_command_line(restless, tmp_path):
    rng = np.random.default_rng(1)
    day = np.arange(1200) % 24 < 12
    states = (rng.random(1200) < np.where(day, 0.7, 0.2)).astype(int)
    lines = [f"2024-01-{1 + t // 24 % 28:02d}T{t % 24:02d}:00,x,{s}" for t, s in enumerate(states[:672])]
    log = tmp_path / "log.csv"
    log.write_text("time,arm,state\n" + "\n".join(lines))
    out, page = tmp_path / "found.toml", tmp_path / "fit.html"
    words = ["fit", log, "--slot", "1h", "--season", "24h", "--phases", "0,12", "--out", out, "--report", page]
    code, text, err = restless(*words)
    assert (code, err) == (0, "")
    assert "phase 0000-1200, from 00:00 to 12:00:" in text
    names = [tmp_path / f"found-{label}.toml" for label in ("0000-1200", "1200-2400")]
    assert text.splitlines()[-1] == f"written: {names[0]}, {names[1]}, {page}"
    problems = [rb.load_problem(name) for name in names]
    assert [problem.name for problem in problems] == ["log, 0000-1200", "log, 1200-2400"]
    assert problems[0].arms[0].transitions[0, 0] < 0.5 < problems[1].arms[0].transitions[0, 0]
    assert page.read_text().startswith("<!DOCTYPE html>")
    code, text, _ = restless(*words, "--json")
    found = json.loads(text)
    assert list(found) == ["season", "phases", "notes", "tests", "fit", "plain", "out", "report"]
    assert [phase["phase"] for phase in found["phases"]] == ["0000-1200", "1200-2400"]
    for more, message in (
        (["--plot", tmp_path / "fit.png"], "--plot draws one chain for each arm, and a season has one for each phase"),
        (["--report", tmp_path / "fit.txt"], "give a name that ends in .html"),
        (["--report", out], "--out and --report are both"),
    ):
        code, text, err = restless("fit", log, "--season", "24h", "--out", out, *more)
        assert (code, text) == (2, "")
        assert message in err
    code, _, err = restless("fit", log, "--phases", "4")
    assert (code, err) == (2, "Error: --phases needs a season; add --season 24h, or leave --phases out\n")
