"""The numbers of docs/reproduction.md and of the report are those of the results that are kept beside it."""

import re

import numpy as np
from benchmarks import reproduction_page

from restless_bandits.paper.experiments.design import design
from restless_bandits.paper.experiments.stored import StoredResults, shipped_folder


def test_the_page_is_what_its_results_say():
    page = reproduction_page.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- (\w+) -->", page)) == {*reproduction_page.PARTS, "end"}
    assert reproduction_page.written(page, reproduction_page.results()) == page


def test_the_report_is_what_its_results_say():
    assert reproduction_page.REPORT.read_text(encoding="utf-8") == reproduction_page.report(reproduction_page.results())


def test_the_results_are_those_of_the_whole_design():
    found = reproduction_page.results()
    assert found["command"] == "restless reproduce"
    assert found["quick"] is False
    assert {claim["id"] for claim in found["claims"]} == {claim.id for claim in design().claims}
    lines = {(figure["item"], line["spec"], line["runs"]) for figure in found["figures"] for line in figure["lines"]}
    for item in design().items[:8]:
        for protocol in item.protocols:
            for line in protocol.lines:
                if line.most_arms >= 4 or item.problem in ("paper-1", "paper-2", "rf-2"):
                    specs = {line.spec, line.spec_many or line.spec}
                    assert any((item.name, spec, item.runs_of(protocol, line)) in lines for spec in specs)


def test_a_changed_number_is_noticed():
    found = reproduction_page.results()
    page = reproduction_page.PAGE.read_text(encoding="utf-8")
    found["figures"][0]["lines"][0]["regret_mean"] = [0.0] * len(found["figures"][0]["lines"][0]["horizons"])
    assert reproduction_page.written(page, found) != page


def test_the_stored_results_are_those_of_the_page():
    assert StoredResults.read().results == reproduction_page.results()
    assert sum(path.stat().st_size for path in shipped_folder().iterdir()) < 1.5e6


def test_stored_runs_have_the_stored_means():
    """Where all runs of a line are stored, their means and spreads are those of the results, bit by bit."""
    stored = StoredResults.read()
    compared = 0
    for item in design(quick=True).items[:8]:
        for protocol, line in item.replayed:
            sample = stored.samples[item.name, protocol.name, line.label]
            panel = stored.panel(item.name, protocol.name)
            (found,) = [one for one in panel["lines"] if one["learner"] == line.label]
            assert set(item.horizons(protocol, line)) <= set(sample.horizons) <= set(found["horizons"])
            assert sample.runs == item.stored_runs
            if found["runs"] > sample.runs:
                continue
            compared += 1
            regret = sample.regret[: found["runs"]]
            at = [found["horizons"].index(one) for one in sample.horizons]
            for name, values in (
                ("mean", regret.mean(axis=0)),
                ("sd", regret.std(axis=0, ddof=1)),
                ("median", np.median(regret, axis=0)),
                ("max", regret.max(axis=0)),
            ):
                np.testing.assert_allclose(values, np.array(found[f"regret_{name}"])[at], rtol=1e-12)
    assert compared == 8 * 5 + 15
