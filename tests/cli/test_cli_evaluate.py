"""``restless evaluate``: what it prints, and what it refuses."""

import json

import pytest
from typer.testing import CliRunner

from restless_bandits.cli.app import app
from tests.logs.test_offpolicy import PAIR, pulled


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    trace = pulled(PAIR, 1200, 3)
    path = tmp_path_factory.mktemp("logs") / "pulls.csv"
    columns = trace.times, trace.arms, trace.states, trace.rewards, trace.probabilities
    rows = (
        f"{t},{trace.names[arm]},{state},{reward},{chance}"
        for t, arm, state, reward, chance in zip(*columns, strict=True)
    )
    path.write_text("\n".join(["time,arm,state,reward,probability", *rows]) + "\n")
    return path


def answer(*words):
    return CliRunner().invoke(app, ["evaluate", *map(str, words)])


def test_for_people(log):
    done = answer(log, "--draws", 10, "--policy", "best-arm", "--policy", "round-robin", "--horizon", 100)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("pulls.csv: 1200 pulls of 2 arms in slots 0 to 1199")
    assert [line.split("  ")[0] for line in lines[2:5]] == ["best-arm, 'b'", "round-robin", "as logged"]
    assert max(map(len, lines[2:])) <= 80
    for sentence in (
        "by the fitted model assumes: each arm moves",
        "by weighting assumes: each arm was chosen",
        "a learner depends",
    ):
        assert sentence in done.stdout


def test_for_programs(log):
    done = answer(log, "--draws", 10, "--policy", "best-arm", "--json", "--confidence", 0.9)
    told = json.loads(done.stdout)
    keys = "trace pulls first_slot last_slot arms best_arm draws confidence seed logged policies notes fit"
    assert list(told) == keys.split()
    one = told["policies"][0]
    assert list(one) == ["policy", "horizon", "model", "weighting"]
    assert list(one["model"]) == ["reward_mean", "interval", "above_best_arm", "above_best_arm_interval", "assumes"]
    keys = "reward_mean interval window effective_pulls left_by_model mean_ratio assumes reason"
    assert list(one["weighting"]) == keys.split()
    assert told["confidence"] == 0.9
    assert one["model"]["interval"][0] < one["model"]["reward_mean"] < one["model"]["interval"][1]


def test_the_default_policies(log):
    told = json.loads(answer(log, "--draws", 10, "--json").stdout)
    assert [one["policy"] for one in told["policies"]] == ["auto", "best-arm, 'b'"]


def test_without_chances(log, tmp_path):
    bare = tmp_path / "bare.csv"
    bare.write_text("\n".join(line.rpartition(",")[0] for line in log.read_text().splitlines()))
    done = answer(bare, "--draws", 10, "--policy", "best-arm")
    assert "by weighting: the log has no column probability" in done.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--policy", "whitle"], "did you mean 'whittle'"),
        (["--draws", "1"], "draws is 1"),
        (["--policy", "no.npz"], "no.npz"),
    ],
)
def test_bad_requests(log, words, message):
    done = answer(log, *words)
    assert done.exit_code != 0
    assert message in str(done.exception)
