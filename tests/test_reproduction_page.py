"""The numbers of docs/reproduction.md and of the report are those of the results that are kept beside it."""

import re

from benchmarks import reproduction_page

from restless_bandits.experiments.design import design


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
