"""The numbers of pages about measurements are those of the results that are kept beside them."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from benchmarks import (
    certainty,
    changing,
    controlled_learning,
    earnings,
    forgetting,
    head_to_head,
    offpolicy,
    pages,
    planning,
    planning_instances,
    reacting,
    scale,
    service,
)

import restless_bandits as rb
from restless_bandits.paper.regret_lower_bound import model_kernels as kernels


def test_the_page_is_what_its_results_say():
    page = pages.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- (\w+) -->", page)) == {"scale", "planning", "earnings", "problems", "service", "end"}
    assert pages.written(page) == page


def test_everything_was_measured():
    assert set(pages.load(scale.KEPT)) == {row.name for row in scale.ROWS}
    assert set(pages.load(planning.KEPT)) == {row.name for row in planning.ROWS}
    kept = pages.load(earnings.KEPT)
    assert set(kept) == {setting.key for setting in earnings.settings()}
    assert all(set(cells) == {"whittle", *earnings.LEARNERS} for cells in kept.values())
    others = pages.load(earnings.OTHERS)
    assert set(others) == {setting.key for setting in earnings.other_settings()}
    assert all(len(shares) == len(earnings.SEEDS) for by_spec in others.values() for shares in by_spec.values())
    assert {name for _, _, name, _, _ in service.WANTED} <= set(pages.load(service.KEPT))


def test_a_changed_number_is_noticed():
    kept = pages.load(scale.KEPT)
    name = scale.ROWS[0].name
    assert scale.table(kept) != scale.table(kept | {name: [99.0, 0.1]})
    assert "**no**" in scale.table({name: [99.0, 0.1]})
    assert "**no**" in scale.table({name: [0.01, scale.MOST_MEMORY + 0.1]})


def test_targets_of_planning_are_judged_in_their_direction():
    row = next(row for row in planning.ROWS if row.at_least and row.peer)
    assert "**no**" in planning.table({row.name: [1.0, 2.0, 0.9 * row.target]})
    assert "yes" in planning.table({row.name: [1.0, 2.0, 1.1 * row.target]})
    assert "**no**" in planning.table({planning.ROWS[0].name: [1.0, None, 1.1 * planning.ROWS[0].target]})


def test_what_was_measured_of_changes():
    page = forgetting.PAGE.read_text(encoding="utf-8")
    assert set(re.findall(r"<!-- (\w+) -->", page)) == {"rate", "builtin", "delay", "loss", "end"}
    assert forgetting.written(page) == page
    kept = pages.load(forgetting.KEPT)
    assert set(kept["loss"]) == set(changing.problems())
    assert all(set(ways) == set(forgetting.WAYS) for ways in kept["loss"].values())
    assert set(kept["rate"]) == set(forgetting.STEADY)
    assert set(kept["builtin"]) == set(rb.builtin_problems(()))


@pytest.mark.parametrize("name", ["paper-1, .7/.8 → .4/.5", "paper-1, reward 1 → .8", "beta, reward .8 → .6"])
def test_delays_of_today_are_those_of_the_page(name, monkeypatch):
    monkeypatch.setattr(forgetting, "REPEATS", 3)
    kept = pages.load(forgetting.KEPT)["delay"][f"{name}; every slot; 1000"]
    assert forgetting.delays((name, "every slot", 1000)) == kept[:3]


def test_false_alarms_of_today_are_those_of_the_page():
    name = "5 states, every slot"
    assert forgetting.false_alarms(name) == pages.load(forgetting.KEPT)["rate"][name]


def test_intervals_from_logs_of_pulls():
    page = offpolicy.PAGE.read_text(encoding="utf-8")
    assert offpolicy.written(page) == page
    kept = pages.load(offpolicy.KEPT)
    assert set(kept) == {setting.name for setting in offpolicy.SETTINGS}


def test_intervals_of_today_hold_the_truth():
    """Of eight intervals of 95 % six or more miss with a probability of 4e-7."""
    seeds = range(offpolicy.FIRST_SEED, offpolicy.FIRST_SEED + 8)
    outcomes = [offpolicy.measure((offpolicy.SETTINGS[0], seed)) for seed in seeds]
    for which in (0, 1):
        logs, held, *_ = offpolicy.row(outcomes, which)
        assert logs == 8
        assert held > 2 / 8


def test_learners_of_observed_arms():
    kept = pages.load(controlled_learning.KEPT)
    assert set(kept) == {*(setting.key for setting in controlled_learning.SETTINGS), controlled_learning.KINDS}
    found, largest = controlled_learning.behind(kept)
    assert found == []
    # A default that loses a tenth on every problem of a setting is noticed.
    key = controlled_learning.SETTINGS[0].key
    row = kept[key][controlled_learning.DEFAULT]
    worse = [[share - 0.1 for share in shares] for shares in row["shares"]]
    changed = kept | {key: kept[key] | {controlled_learning.DEFAULT: row | {"shares": worse}}}
    assert len(controlled_learning.behind(changed)[0]) > 10
    assert controlled_learning.behind(changed)[1] != largest
    assert "**missed**" in controlled_learning.demands(changed)


def test_head_to_head():
    cells = head_to_head.kept_cells()
    assert head_to_head.PAGE.read_text(encoding="utf-8") == head_to_head.page(cells)
    assert set(cells) == {name for name in rb.builtin_problems(()) if not name.startswith("table")}
    cell = cells["paper-1"]["restless-ucb"]
    won = {"paper-1": cells["paper-1"] | {"restless-ucb": replace(cell, means=(0, 0, 0))}}
    assert any("restless-ucb" in line for line in head_to_head.losses(won))


@pytest.mark.parametrize("spec", ["restless-ucb", "colored-ucrl2:cap=10", "rca", "dsee", "ucb1", "round-robin"])
def test_runs_of_today_are_those_of_the_head_to_head(spec):
    """All runs are played again up to the first horizon; three digits of their mean are kept."""
    kept, horizon = head_to_head.kept_cells()["paper-1"][spec], head_to_head.HORIZONS[0]
    regret = rb.simulate(rb.Problem.builtin("paper-1"), spec, horizon, runs=kept.runs, checkpoints=[horizon]).regret()
    assert regret[0].mean() == pytest.approx(kept.means[0], rel=5e-3)


def test_a_cell_of_runs():
    regret = np.array([[1.0, 2.0, 4.0], [3.0, 4.0, 10.0]])
    cell = head_to_head.Cell.of(regret, 1.234)
    assert (cell.runs, cell.means, cell.errors, cell.worst, cell.seconds) == (2, (2, 3, 7), (1, 1, 3), 10, 1.2)
    assert cell.slope == pytest.approx(4 / math.log(10))


class TestCertainty:
    def test_looks_in_the_next_slot_tell_a_move(self):
        arm = rb.Arm([[0.7, 0.3], [0.1, 0.9]], [0.8, 0.0])
        distributions = kernels.distributions_of(arm.chain, 5)
        looks = np.isclose(distributions, [0.7, 0.3]).all(axis=1).astype(float)
        assert looks.sum() == 1
        found = certainty.information(arm, looks, 5)
        assert found[0, 0] == pytest.approx(1 / (0.7 * 0.3))
        assert found[1, 1] == pytest.approx(0, abs=1e-9)
        assert found[2, 2] == pytest.approx(0.7 / (0.8 * 0.2))

    def test_nothing_is_lost_once_all_is_known(self, monkeypatch):
        monkeypatch.setattr(certainty, "TIMES", np.array([30.0, 1e12]))
        monkeypatch.setattr(certainty, "DRAWS", 6)
        early, late = certainty.losses(rb.Problem.builtin("paper-1"))
        assert early.mean() > 1e-3
        assert (late < 1e-9).all()


def test_lifts_on_reacting_arms():
    page = reacting.PAGE.read_text(encoding="utf-8")
    assert reacting.written(page) == page
    kept = pages.load(reacting.KEPT)
    assert set(kept) == set(reacting.LEARNERS)
    assert all(np.shape(cell["lifts"]) == (len(reacting.SEEDS), len(reacting.CHECKPOINTS)) for cell in kept.values())


@pytest.mark.parametrize("spec", ["posterior", "round-robin"])
def test_lifts_of_today_are_those_of_the_page(spec):
    """The first checkpoint of the first problem is played again; the two learners are 0.04 apart there."""
    kept, slots = pages.load(reacting.KEPT)[spec]["lifts"][0][0], reacting.CHECKPOINTS[0]
    problem, runs = reacting.problem_of(reacting.SEEDS[0]), range(reacting.RUNS[slots])
    worst, best, found = (
        np.mean([reacting.play(player, problem, run, slots)[0][0] for run in runs])
        for player in (reacting.RANDOM, reacting.INDEX, spec)
    )
    assert (found - worst) / (best - worst) == pytest.approx(kept, abs=0.02)


class TestPlanningInstances:
    def test_the_page_is_what_its_results_say(self):
        page = planning_instances.PAGE.read_text(encoding="utf-8")
        assert planning_instances.written(page) == page

    @pytest.mark.parametrize("one", planning_instances.PUBLISHED, ids=lambda one: f"{one.instance} {one.quantity}")
    def test_indices_and_bounds_of_today_are_those_of_the_page(self, one):
        kept, today = pages.load(planning_instances.KEPT)[f"{one.instance} {one.quantity}"], one.computed()
        assert today == pytest.approx(kept, abs=1e-11)
        differing = {"`restart-5` index", "`three-states` bound", "`conveyor-8` bound"}
        differing.add("`three-states` bound, rows as printed")
        assert (one.units(today) > 0.5) == (f"{one.instance} {one.quantity}" in differing)

    @pytest.mark.parametrize("name", planning_instances.CLOSED_FORMS)
    def test_closed_forms(self, name):
        (difference,) = planning_instances.CLOSED_FORMS[name]()
        assert difference < 1e-12

    def test_simulated_gains_are_published_ones(self):
        """Six differences of independent runs are all below 4.5 standard errors with a probability of 1 − 4e-5."""
        kept = pages.load(planning_instances.KEPT)
        for (name, oracle, arms), (mean, error) in planning_instances.SIMULATED.items():
            here = kept[f"{name} {oracle} {arms}"]
            assert abs(here["gain"] - mean) < 4.5 * math.hypot(error, here["stderr"])

    def test_a_run_of_today_is_that_of_the_page(self):
        kept = pages.load(planning_instances.KEPT)["three-states whittle 100"]
        assert planning_instances.solved("three-states", "whittle", 100)["gain"] == pytest.approx(
            kept["gain"], rel=1e-9
        )
