"""The paper's experiments as data."""

import dataclasses

import pytest

import restless_bandits as rb
from restless_bandits.paper.experiments import design
from restless_bandits.paper.experiments.figures import Line, RegretFigure
from restless_bandits.paper.experiments.verdicts import TESTS


def figures(plan):
    return [item for item in plan.items if isinstance(item, RegretFigure)]


def test_the_paper_is_all_there():
    whole = design()
    problems = [figure.problem for figure in figures(whole)]
    assert problems[:6] == ["paper-1", "paper-2", "lms-urban-s", "lms-heavy-tree-s", "lms-suburban-l", "lms-urban-l"]
    assert problems[6:] == ["rf-2", "rf-3"]
    assert [figure.runs for figure in figures(whole)[:6]] == [1000, 1000, 200, 200, 200, 200]
    published = whole.protocol("published")
    assert published.horizons == tuple(range(5000, 50_001, 5000))
    assert [line.label for line in published.lines] == ["Restless-UCB", "colored-UCRL2", "TS-9", "TS-4"]
    table, inside, theory = whole.items[8:]
    assert [line.paper[-1] for line in table.lines] == [5, 10, 9, 129387]
    assert (table.name, inside.name, theory.name) == ("table-1", "inside", "theory")
    assert all("stand-in" in one.title.lower() and "stand-in" in one.note.lower() for one in figures(whole)[6:])


def test_every_claim_can_be_decided():
    whole = design()
    labels = {line.label for protocol in whole.protocols for line in protocol.lines}
    assert len({claim.id for claim in whole.claims}) == len(whole.claims)
    for claim in whole.claims:
        assert claim.test in TESTS
        assert set(claim.items) <= set(whole.names)
        named = claim.options.get("of", [])
        assert set([named] if isinstance(named, str) else named) <= labels
        assert set(claim.options.get("than", [])) <= labels


def test_specs_are_read():
    whole = design()
    for item in figures(whole):
        for protocol in whole.protocols:
            for line in protocol.lines_for(rb.Problem.builtin(item.problem)):
                jobs = item.jobs(protocol, line, seed=0)
                assert [job.horizon for job in jobs] == (
                    list(item.horizons(protocol, line)) if line.anew else [jobs[0].checkpoints[-1]]
                )
                assert all(job.runs == item.runs_of(protocol, line) for job in jobs)
                known = protocol.name == "published"
                assert all((job.learner.needs == {"rewards"}) == known for job in jobs)


def test_caps_of_the_published_protocol():
    whole = design()
    colored = whole.protocol("published").lines[1]
    assert "cap=10" in colored.spec_for(rb.Problem.builtin("paper-1"))
    assert "cap=3" in colored.spec_for(rb.Problem.builtin("rf-3"))


def test_a_line_joins_the_fair_protocol_by_one_entry():
    whole = design(["figure-a"])
    fair = whole.protocol("fair")
    joined = dataclasses.replace(fair, lines=(*fair.lines, Line("UCB1", "ucb1")))
    jobs = whole.items[0].jobs(joined, joined.lines[-1], seed=0)
    assert [job.label for job in jobs] == ["ucb1"]
    assert jobs[0].checkpoints[-1] == whole.items[0].horizon


def test_quick_plays_the_first_runs_of_the_same_items():
    quick, whole = design(quick=True), design()
    assert quick.names == whole.names
    pairs = list(zip(quick.items, whole.items, strict=True))
    for a, b in pairs:
        if not isinstance(a, RegretFigure):
            continue
        for protocol, line in a.replayed:
            assert a.runs_of(protocol, line) < b.runs_of(protocol, line)
            # The beginning of the same run: the same checkpoints, or as many of them as are wanted.
            known = b.horizons(protocol, line)
            assert a.horizons(protocol, line) == known[: len(a.horizons(protocol, line))]
            uses_horizon = "colored-ucrl2" in line.spec and protocol.name == "fair"
            assert not uses_horizon or a.horizons(protocol, line) == known
    assert [sum(quick.items[8].runs_of(line)) for line in quick.items[8].lines] == [12, 12, 12, 7]
    assert quick.items[-1] == whole.items[-1]


def test_runs_in_place_of_the_design_are_those_of_every_line():
    item = design(quick=True).items[0].with_runs(7)
    assert {item.runs_of(protocol, line) for protocol in item.protocols for line in protocol.lines} == {7}


def test_unknown_item():
    with pytest.raises(rb.ProblemError, match="no item 'figure-z'; did you mean"):
        design(["figure-z"])
