"""The theory entries of the ledger."""

import dataclasses
import json

import pytest

from restless_bandits.model.arms import Arm
from restless_bandits.model.problem import Problem
from restless_bandits.paper.experiments import reproduce, reproduction
from restless_bandits.paper.experiments.design import design
from restless_bandits.paper.experiments.lemmas import CHECKS, Case, check_all
from restless_bandits.paper.experiments.verdicts import FAILS, FROM, NOT_RUN, UNVIOLATED, Evidence, decide


def small(item):
    return dataclasses.replace(item, problems=("paper-1",), horizons=(500,), event_runs=2000, exploration_runs=50)


@pytest.fixture(scope="module")
def whole():
    return design(["theory"])


@pytest.fixture(scope="module")
def findings(whole):
    return check_all(small(whole.items[0]))


def test_every_check_decides_a_claim(whole):
    named = [claim.options["check"] for claim in whole.claims if claim.test == "theory"]
    assert sorted(named) == sorted(CHECKS)


def test_verdicts(whole, findings):
    claims = [claim for claim in whole.claims if claim.test == "theory"]
    verdicts = {claim.id: decide(claim, Evidence(theory=findings))[0] for claim in claims}
    outcomes = {key: one.outcome for key, one in verdicts.items()}
    assert [key for key, one in outcomes.items() if one == FAILS] == ["forgetting"]
    assert outcomes["theorem-1-says"] == outcomes["theorem-2-says"] == FROM
    assert verdicts["theorem-1-says"].horizon == pytest.approx(8.16e13, rel=0.02)
    assert sum(one == UNVIOLATED for one in outcomes.values()) == len(outcomes) - 3
    for claim in claims:
        assert decide(claim, Evidence({}))[0].outcome == NOT_RUN


def test_same_seed_same_findings(whole, findings):
    item = small(whole.items[0])
    problem = Problem.builtin("paper-1")
    for name in ("event", "exploration", "law_gap"):
        assert CHECKS[name](item, [Case(problem, 0)]) == findings[name]
    assert CHECKS["exploration"](item, [Case(problem, 1)]) != findings["exploration"]


def test_checks_can_fail(whole):
    """Negatively correlated chains: the order of the laws is lost."""
    item = small(whole.items[0])
    broken = Case(Problem([Arm([[0.2, 0.8], [0.7, 0.3]], [1.0, 0.0], initial=0)], name="negative"), 0)
    (finding,) = CHECKS["order"](item, [broken])
    assert finding.outcome == FAILS
    assert finding.numbers["rows"] >= 0 > finding.numbers["powers"]


def test_item_of_a_reproduction(tmp_path, monkeypatch, findings):
    def shrunk(items, *, quick=False):
        plan = design(items, quick=quick)
        return dataclasses.replace(plan, items=tuple(map(small, plan.items)))

    monkeypatch.setattr(reproduction, "design", shrunk)
    found = reproduce(["theory"], out=tmp_path / "out", jobs=1)
    results = json.loads((tmp_path / "out" / "results.json").read_text(encoding="utf-8"))
    (event,) = [claim for claim in results["claims"] if claim["id"] == "event"]
    assert event["verdict"] == "no violation in 1 instance"
    assert event["findings"][0]["probability"] == findings["event"][0].numbers["probability"]
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert 'id="theory"' in page
    assert findings["event"][0].text in page
    assert {one.outcome for one in found.verdicts if one.claim.test != "theory"} == {NOT_RUN}
