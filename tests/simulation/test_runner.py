import dataclasses
import itertools
import json
import math
import signal
import sys
import threading
from contextlib import contextmanager

import numpy as np
import pytest
from scipy import stats

import restless_bandits as rb
from restless_bandits import oracles
from restless_bandits.learning.learners import UCB1, RestlessUCB, learner
from restless_bandits.simulation import (
    Comparator,
    SimulationInterrupted,
    SimulationResult,
    comparator,
    scheduler,
    simulate,
)
from restless_bandits.simulation import jobs as jobs_module
from restless_bandits.simulation.engine import World, play_run
from restless_bandits.simulation.runner import checkpoint_slots
from tests.optional import needed

FALSE_ALARM = 1e-6
SPECS = ["restless-ucb:m=60", "round-robin", "ucb1", "myopic"]


@pytest.fixture(scope="module")
def problem():
    return rb.Problem.builtin("paper-1")


@pytest.fixture(scope="module")
def queue():
    """A problem that no simulation can afford to solve."""
    return rb.Problem.builtin("queue-5")


def assert_same(one, other, *, seconds=False):
    """Bit for bit the same numbers; what time they took may differ."""
    assert one.learners == other.learners
    for mine, theirs in zip(one.outcomes, other.outcomes, strict=True):
        assert np.array_equal(mine.at, theirs.at)
        assert np.array_equal(mine.pulls, theirs.pulls)
        assert len(mine.plan_lengths) == len(theirs.plan_lengths)
        assert all(map(np.array_equal, mine.plan_lengths, theirs.plan_lengths))
        assert not seconds or np.array_equal(mine.seconds, theirs.seconds)


@contextmanager
def no_run_from(first, monkeypatch):
    """Hold up every run from this one on, so that an interrupt comes in the middle however fast the others are."""
    over = threading.Event()
    play = jobs_module.play_run

    def held(*arguments, run, **options):
        if run >= first:
            over.wait()
            raise RuntimeError("held up")
        return play(*arguments, run=run, **options)

    with monkeypatch.context() as patch:
        patch.setattr(jobs_module, "play_run", held)
        patch.setattr(scheduler, "LAST_WAIT", 0.1)
        patch.setattr(scheduler, "PIECE_SECONDS", 0.0)
        yield
    over.set()


def interrupt_at(count, number=signal.SIGINT):
    """A progress callback that presses Ctrl-C, or does what another signal does."""

    def progress(done, total):
        if done == count:
            signal.raise_signal(number)

    return progress


class TestNothingElseChangesARun:
    @pytest.fixture(scope="class")
    @classmethod
    def plain(cls, problem):
        return simulate(problem, SPECS, 2000, runs=13, seed=3, jobs=1)

    @pytest.mark.parametrize("jobs", [2, 5, None])
    def test_jobs(self, problem, plain, jobs):
        assert_same(simulate(problem, SPECS, 2000, runs=13, seed=3, jobs=jobs), plain)

    def test_engine(self, problem, plain):
        assert_same(simulate(problem, SPECS, 2000, runs=13, seed=3, jobs=2, engine="processes"), plain)

    @pytest.mark.parametrize("seconds", [0.0, 1e-3, 100.0])
    def test_size_of_pieces(self, problem, plain, seconds, monkeypatch):
        monkeypatch.setattr(scheduler, "PIECE_SECONDS", seconds)
        assert_same(simulate(problem, SPECS, 2000, runs=13, seed=3), plain)

    @pytest.mark.parametrize("block", [1, 4, 100])
    def test_block_size(self, problem, plain, block, monkeypatch, tmp_path):
        monkeypatch.setattr(scheduler, "RUNS_PER_FILE", block)
        assert_same(simulate(problem, SPECS, 2000, runs=13, seed=3, out=tmp_path), plain)

    def test_other_learners_and_their_order(self, problem, plain):
        backwards = simulate(problem, SPECS[::-1], 2000, runs=13, seed=3)
        for spec in SPECS:
            alone = simulate(problem, spec, 2000, runs=13, seed=3)
            for result in (backwards, plain):
                mine = result.outcomes[result.number(spec)]
                assert_same(alone, dataclasses.replace(result, learners=(spec,), outcomes=(mine,)))

    def test_more_runs(self, problem, plain):
        more = simulate(problem, SPECS, 2000, runs=20, seed=3)
        assert np.array_equal(more.realised_reward[:, :13], plain.realised_reward)

    def test_a_run_is_what_the_engine_plays(self, problem, plain):
        world = World(problem)
        for spec, run in itertools.product(SPECS, (0, 12)):
            played = play_run(learner(spec), world, 2000, plain.checkpoints, seed=3, run=run)
            n = plain.number(spec)
            assert np.array_equal(played.totals.at[:, :2], plain.outcomes[n].at[run, :, :2])
            assert np.array_equal(played.record.pulls, plain.pulls[n, run])
            assert played.record.plan_lengths == plain.plan_lengths[spec][run].tolist()

    def test_runs_and_seeds_differ(self, problem, plain):
        assert len(np.unique(plain.realised_reward[1, :, -1])) > 1
        other = simulate(problem, "round-robin", 2000, runs=13, seed=4)
        assert not np.array_equal(other.realised_reward[0], plain.realised_reward[1])

    def test_comparator_and_ratio_change_no_run(self, problem, plain):
        assert_same(simulate(problem, SPECS, 2000, runs=13, seed=3, comparator="best-arm", ratio=0.5), plain)


class TestCheckpoints:
    def test_linear(self):
        assert checkpoint_slots(10, 50_000).tolist() == list(range(5000, 50_001, 5000))
        assert checkpoint_slots("3", 10).tolist() == [4, 7, 10]
        assert checkpoint_slots(10, 4).tolist() == [1, 2, 3, 4]
        assert checkpoint_slots(1, 7).tolist() == [7]

    def test_logarithmic(self):
        found = checkpoint_slots("log:20", 50_000)
        assert found[0] == 1
        assert found[-1] == 50_000
        assert (np.diff(found) > 0).all()
        assert len(found) <= 20
        assert checkpoint_slots("log:1", 9).tolist() == [9]
        assert checkpoint_slots("log:20", 1).tolist() == [1]

    def test_list(self):
        assert checkpoint_slots([5, 1, 5], 9).tolist() == [1, 5, 9]
        assert checkpoint_slots(np.array([9]), 9).tolist() == [9]

    @pytest.mark.parametrize("bad", [0, -1, "log:", "log:0", "lin:3", "x", [0], [10], [1.5], True])
    def test_bad(self, bad):
        with pytest.raises(rb.ProblemError, match="checkpoint"):
            checkpoint_slots(bad, 9)

    def test_sums_grow_from_checkpoint_to_checkpoint(self, problem):
        few = simulate(problem, "ucb1", 1000, runs=3, checkpoints=[10, 400])
        many = simulate(problem, "ucb1", 1000, runs=3, checkpoints=1000)
        assert few.checkpoints.tolist() == [10, 400, 1000]
        assert np.array_equal(few.expected_reward, many.expected_reward[:, :, few.checkpoints - 1])
        assert (np.diff(many.realised_reward) >= 0).all()


class TestRegret:
    @pytest.fixture(scope="class")
    @classmethod
    def many(cls, problem):
        return simulate(problem, [*SPECS, "best-arm"], 5000, runs=400, seed=1, checkpoints=2)

    def test_realised_and_expected_agree_in_the_mean(self, many):
        """Their difference has mean zero: false alarm 1e-6 over all; 0.002 a slot would be seen."""
        difference = (many.regret("realised") - many.regret("expected"))[:, :, -1]
        limit = stats.t.isf(FALSE_ALARM / len(difference) / 2, many.runs - 1)
        assert (np.abs(stats.ttest_1samp(difference, 0, axis=1).statistic) < limit).all()
        assert (difference.std(axis=1, ddof=1) / math.sqrt(many.runs) * limit < 0.002 * 5000).all()

    def test_expected_and_gap_agree_in_the_mean(self, many, problem):
        """Up to the spread of the bias, the start and end term: false alarm 1e-6 over all; 0.002 a slot shows."""
        bias = oracles.exact(problem).bias
        difference = (many.regret("expected") - many.regret("gap"))[:, :, -1]
        stderr = difference.std(axis=1, ddof=1) / math.sqrt(many.runs)
        limit = stats.t.isf(FALSE_ALARM / len(difference) / 2, many.runs - 1)
        assert np.ptp(bias) + limit * stderr.max() < 0.002 * 5000
        assert (np.abs(difference.mean(axis=1)) < np.ptp(bias) + limit * stderr).all()

    def test_each_kind_is_less_noisy_than_the_one_before(self, problem):
        found = simulate(problem, "whittle", 5000, runs=50)
        realised, expected, gap = (found.regret(kind)[0, :, -1].std() for kind in ("realised", "expected", "gap"))
        assert gap == 0 < 2 * expected < realised

    @pytest.mark.parametrize("name", ["paper-1", "paper-2", "lms-urban-s", "table-3"])
    def test_an_exact_player_has_no_gap_at_all(self, name):
        found = simulate(rb.Problem.builtin(name), "exact", 5000, runs=5)
        assert found.kinds[-1] == "gap"
        assert (found.regret() == 0).all()

    def test_formulas(self, many):
        gain = many.comparator.gain
        assert np.array_equal(many.regret("realised"), gain * many.checkpoints - many.realised_reward)
        assert np.array_equal(many.regret(), many.gap)
        assert np.array_equal(many.regret("gap", learner="ucb1"), many.gap[2])
        upper = many.regret("gap", against="upper")
        assert upper == pytest.approx(many.gap + many.checkpoints * (many.comparator.upper - gain))

    def test_ratio(self, problem):
        found = simulate(problem, "ucb1", 500, runs=3, ratio=0.5)
        assert found.kinds[-1] == "expected"
        expected = 0.5 * found.comparator.gain * found.checkpoints - found.expected_reward
        assert np.array_equal(found.regret(), expected)
        with pytest.raises(rb.ProblemError, match=r"ratio 1, not 0\.5"):
            found.regret("gap")

    def test_unknown_words(self, many):
        with pytest.raises(rb.ProblemError, match="did you mean 'realised'"):
            many.regret("realized")
        with pytest.raises(rb.ProblemError, match="did you mean 'ucb1'"):
            many.regret(learner="ucb2")
        with pytest.raises(rb.ProblemError, match="did you mean 'lower'"):
            many.regret(against="lwer")


class TestComparator:
    def test_what_ships_is_what_the_exact_oracle_finds(self):
        """Solves the cheap ones again."""
        shipped = comparator.certified_gains()
        names = [name for name in rb.builtin_problems(()) if name not in ("queue-5", "lms-urban-l", "table-5")]
        assert {rb.Problem.builtin(name).content for name in names} <= set(shipped)
        assert rb.Problem.builtin("queue-5").content not in shipped
        for entry in shipped.values():
            assert entry["lower"] <= entry["gain"] <= entry["upper"] <= entry["lower"] + 1e-4
        cheap = [entry["name"] for entry in shipped.values() if entry["beliefs"] < 100_000]
        assert len(cheap) >= 5
        for content, again in comparator.certify(cheap).items():
            assert again["name"] == shipped[content]["name"]
            assert again["gain"] == pytest.approx(shipped[content]["gain"], abs=1e-10)

    def test_the_papers_instances(self):
        gains = [simulate(rb.Problem.builtin(f"paper-{n}"), "ucb1", 1, runs=1).comparator for n in (1, 2)]
        assert [one.kind for one in gains] == ["certified", "certified"]
        assert [one.gain for one in gains] == pytest.approx([0.456464072292, 0.286004062011], abs=1e-11)

    def test_a_small_problem_is_solved(self):
        found = simulate(rb.Problem.random(2, 2, seed=1), "myopic", 100, runs=2)
        assert found.comparator.kind == "exact"
        assert found.comparator.lower <= found.comparator.gain <= found.comparator.upper
        assert found.kinds[-1] == "gap"

    def test_a_large_one_has_a_bracket(self, queue, monkeypatch):
        monkeypatch.setattr(oracles, "exact", None)
        found = simulate(queue, "myopic", 1000, runs=4)
        assert found.comparator.kind == "bracket"
        assert found.comparator.gain == found.comparator.upper > found.comparator.lower
        assert found.kinds[-1] == "expected"
        assert found.gap is None
        low, high = (found.regret(against=end)[0, :, -1] for end in ("lower", "upper"))
        assert np.array_equal(found.regret()[0, :, -1], high)
        assert high - low == pytest.approx(1000 * (found.comparator.upper - found.comparator.lower))
        summary = found.summary("myopic")
        assert summary["regret_against_lower_mean"][-1] == pytest.approx(low.mean())
        assert summary["regret_against_upper_mean"] == summary["regret_mean"]
        shown = f"{high.mean():.5g} ± {summary['regret_stderr'][-1]:.2g}"
        for text in (shown, "of whittle", f"{summary['share_of_upper'][-1]:.1%}", "μ*", "simulated, 97.5% confidence"):
            assert text in repr(found)
            assert text in found._repr_html_()
        assert {"regret_against_lower", "regret_against_upper"} <= set(dict(found.columns()))
        with pytest.raises(rb.ProblemError, match="too large to price"):
            found.regret("gap")

    def test_a_simulated_lower_end_is_named(self, queue, tmp_path):
        found = simulate(queue, ["whittle", "myopic"], 20_000, runs=4)
        against, proved = found.comparator, oracles.whittle(queue)
        earned = rb.evaluate(queue, proved.policy, simulate=True)
        assert (against.policy, against.policy_gain, against.stderr) == ("whittle", earned.gain, earned.stderr)
        assert (against.lower, against.proved_lower) == (earned.interval[0], proved.lower)
        assert against.proved_lower < against.lower < against.policy_gain < against.upper == proved.upper
        assert against.lower_confidence == 0.975
        for n, one in enumerate(found.summaries()):
            reward = found.expected_reward[n].mean(axis=0)
            assert one["expected_reward_mean"] == pytest.approx(reward / found.checkpoints)
            assert one["share_of_upper"] == pytest.approx(reward / found.checkpoints / against.upper)
            assert one["share_of_policy"] == pytest.approx(reward / found.checkpoints / earned.gain)
        assert found.summary("whittle")["share_of_policy"][-1] == pytest.approx(1, abs=0.02)
        found.save(tmp_path / "found.npz")
        assert repr(rb.SimulationResult.load(tmp_path / "found.npz")) == repr(found)

    def test_a_bracket_of_costs_is_shown_as_costs(self):
        means = ([2, 5, 9], [3, 4, 9], [1, 6, 8], [2, 4, 7], [3, 5, 6])
        chain = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]]
        arms = [rb.Arm(chain, costs=costs, cost_range=(0, 10), reward_law="fixed") for costs in means]
        found = simulate(rb.Problem(arms), "whittle", 200, runs=2)
        (row,) = found.bracket_table[1]
        assert found.bracket_table[0][1] == "cost a slot"
        assert float(row[1]) == pytest.approx(-found.summaries()[0]["expected_reward_mean"][-1], abs=1e-4)
        low, high = (f"{-end:.9g}" for end in (found.comparator.upper, found.comparator.lower))
        assert f"{low} ≤ least cost ≤ {high}" in repr(found)
        assert "upper end: simulated" in repr(found)
        assert found.summaries()[0]["share_of_upper"][-1] > 1

    def test_an_optimum_of_costs_is_shown_as_a_cost(self):
        arms = [rb.Arm([[0.7, 0.3], [0.2, 0.8]], costs=costs, cost_range=(0, 9)) for costs in ((0, 9), (0, 9))]
        found = simulate(rb.Problem(arms), "myopic", 100, runs=2)
        assert f"regret against exact {-found.comparator.gain:.12g}" in repr(found)
        assert f"regret against {-found.comparator.gain:.12g}" in found.comparator_lines[0]
        cost = -found.summary("myopic")["reward_mean"][-1]
        for text in ("cost a slot", f"<td>{cost:.6g}</td>"):
            assert text in found._repr_html_()

    def test_rewards_of_both_signs_have_no_shares(self):
        chain = [[0.9, 0.1, 0.0], [0.1, 0.8, 0.1], [0.0, 0.2, 0.8]]
        arms = [rb.Arm(chain, [k, 0, -1], reward_range=(-9, 9), reward_law="fixed") for k in range(1, 6)]
        found = simulate(rb.Problem(arms), "whittle", 200, runs=2)
        assert found.summaries()[0]["share_of_upper"] is None
        assert found.bracket_table[1][0][2:4] == ("–", "–")

    def test_others(self, problem):
        paper_2 = rb.Problem.builtin("paper-2")
        for wanted, kind, gain in [
            ("exact", "certified", 0.286004062011),
            ("whittle", "whittle", 0.285832),
            ("best-arm", "best-arm", oracles.best_arm(paper_2).gain),
            (0.25, "given", 0.25),
        ]:
            found = simulate(paper_2, "whittle", 200, runs=2, comparator=wanted)
            assert found.comparator.kind == kind
            assert found.comparator.gain == pytest.approx(gain, abs=1e-6)
            assert found.kinds[-1] == ("gap" if wanted == "exact" else "expected")

    def test_many_arms_are_not_counted(self):
        assert comparator.joint_beliefs_needed(rb.Problem.random(200, 2, seed=0)) == math.inf

    @pytest.mark.parametrize(
        ("wanted", "message"),
        [("whitle", "did you mean 'whittle'"), (math.nan, "finite"), ("xyz", "choose from auto")],
    )
    def test_bad(self, problem, wanted, message):
        with pytest.raises(rb.ProblemError, match=message):
            simulate(problem, "ucb1", 10, comparator=wanted)

    def test_a_policy_that_cannot_be_evaluated(self, queue):
        with pytest.raises(rb.ProblemError, match="too large to evaluate whittle"):
            simulate(queue, "ucb1", 10, comparator="whittle")


class TestResult:
    @pytest.fixture(scope="class")
    @classmethod
    def found(cls, problem):
        return simulate(problem, ["restless-ucb:m=20", "ucb1"], 300, runs=4, seed=2, trace=True, checkpoints="log:5")

    def test_axes(self, found, problem):
        shape = (2, 4, len(found.checkpoints))
        for values in (found.realised_reward, found.expected_reward, found.gap, found.regret()):
            assert values.shape == shape
        assert found.pulls.shape == (2, 4, 2)
        assert (found.pulls.sum(axis=2) == 300).all()
        assert found.seconds.shape == (2, 4)
        assert all(lengths.sum() == 300 for runs in found.plan_lengths.values() for lengths in runs)
        assert found.arms == ("arm 1", "arm 2")

    def test_traces_add_up(self, found):
        for n, spec in enumerate(found.learners):
            trace = found.traces[spec]
            assert trace.arms.shape == trace.states.shape == trace.rewards.shape == (4, 300, 1)
            assert np.array_equal(trace.rewards.sum(axis=(1, 2)), found.realised_reward[n, :, -1])
            assert np.array_equal((trace.arms == 1).sum(axis=(1, 2)), found.pulls[n, :, 1])

    def test_tracing_changes_nothing(self, found, problem):
        plain = simulate(problem, list(found.learners), 300, runs=4, seed=2, checkpoints="log:5")
        assert plain.traces == {}
        assert_same(found, plain)

    def test_summary(self, found):
        row = found.summary("ucb1")
        regret = found.regret("gap", learner="ucb1")
        assert row["regret_kind"] == "gap"
        assert row["checkpoints"] == found.checkpoints.tolist()
        assert row["regret_mean"] == pytest.approx(regret.mean(axis=0))
        assert row["regret_sd"] == pytest.approx(regret.std(axis=0, ddof=1))
        assert row["regret_stderr"] == pytest.approx(regret.std(axis=0, ddof=1) / 2)
        assert row["regret_max"] == pytest.approx(regret.max(axis=0))
        assert row["reward_mean"] == pytest.approx(found.realised_reward[1].mean(axis=0) / found.checkpoints)
        assert row["slots_per_second"] == pytest.approx(4 * 300 / row["seconds"])
        assert sum(row["pulls_share"]) == pytest.approx(1)

    def test_save_and_load(self, found, tmp_path):
        path = tmp_path / "result.npz"
        found.save(path)
        again = SimulationResult.load(path)
        assert_same(found, again, seconds=True)
        assert again.as_dict() == found.as_dict()
        assert repr(again) == repr(found)
        assert again.comparator == found.comparator
        for spec, trace in found.traces.items():
            assert np.array_equal(trace.states, again.traces[spec].states)

    def test_many_learners_save_and_load(self, problem, tmp_path):
        specs = [f"ucb1:width={n}.5" for n in range(12)]
        found = simulate(problem, specs, 50, runs=1)
        found.save(tmp_path / "r.npz")
        assert_same(SimulationResult.load(tmp_path / "r.npz"), found)

    @pytest.mark.parametrize("content", [None, b"", b"PK\x03\x04 no zip", b"text"])
    def test_loading_something_else(self, tmp_path, content):
        path = tmp_path / "x.npz"
        if content is None:
            np.savez(path, a=np.zeros(3))
        else:
            path.write_bytes(content)
        with pytest.raises(rb.ProblemError, match=r"x\.npz is not a stored simulation result"):
            SimulationResult.load(path)
        with pytest.raises(rb.ProblemError, match="no such file"):
            SimulationResult.load(tmp_path / "none.npz")

    @pytest.mark.parametrize(
        "changes",
        [
            {"checkpoints": [1, 5, 3, 300]},
            {"checkpoints": [0.5, 300.0]},
            {"0_pulls": np.zeros((4, 2), dtype=int)},
            {"0_seconds": [-1.0] * 4},
            {"0_plans": [1, 1]},
            {"0_at": np.full((4, 10, 3), np.nan)},
            {"1_at": np.full((4, 10, 3), 1e9)},
            {"label": "[" * 5000},
        ],
    )
    def test_results_that_cannot_be(self, found, tmp_path, changes):
        path = tmp_path / "r.npz"
        found.save(path)
        with np.load(path) as stored:
            arrays = dict(stored)
        assert changes.keys() <= arrays.keys()
        np.savez(path, **arrays | changes)
        with pytest.raises(rb.ProblemError, match=r"r\.npz is not a stored simulation result"):
            SimulationResult.load(path)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"runs": 10**9}, "runs is 1000000000; it must be a whole number from 1 to 1000000"),
            ({"checkpoints": "log:1000000000"}, "checkpoints is 1000000000"),
            ({"checkpoints": 10**9}, "checkpoints is 1000000000"),
            ({"checkpoints": "9" * 5000}, "checkpoints is '999"),
            ({"checkpoints": 10**6, "runs": 10**4, "horizon": 10**7}, "too many to hold; give fewer"),
            ({"trace": True, "horizon": 10**9}, "runs with traces leave"),
            ({"problem": "papr-1"}, "did you mean 'paper-1'"),
            ({"problem": None}, "problem is None; give a Problem"),
        ],
    )
    def test_more_than_any_machine_holds_and_no_problem_at_all(self, problem, options, message):
        with pytest.raises(rb.ProblemError, match=message):
            simulate(**{"problem": problem, "learners": "round-robin", "horizon": 2000} | options)

    @pytest.mark.parametrize("options", [{"ratio": 1e308}, {"comparator": 1e308}, {"comparator": 10**400}])
    def test_regrets_that_no_number_holds(self, problem, options):
        with pytest.raises(
            rb.ProblemError, match=r"(ratio is .* of at most 1e\+09|comparator is .* of at most 1e\+20)"
        ):
            simulate(problem, "round-robin", 20, runs=1, **options)

    def test_saving_nowhere(self, found, tmp_path):
        with pytest.raises(rb.ProblemError, match="cannot write"):
            found.save(tmp_path / "none" / "r.npz")

    def test_repr(self, found):
        shown = repr(found)
        assert "paper-1, T = 300, 4 runs" in shown
        assert "gap regret against certified 0.456464" in shown
        assert "ucb1" in shown

    def test_pandas(self, found):
        needed("pandas")
        table = found.to_pandas()
        assert len(table) == found.regret().size
        picked = table[(table.learner == "ucb1") & (table.run == 2) & (table.checkpoint == 300)]
        assert picked.regret.item() == found.regret()[1, 2, -1]

    def test_xarray(self, found):
        needed("xarray")
        data = found.to_xarray()
        picked = data.regret.sel(learner="ucb1", run=2, checkpoint=300).item()
        assert picked == found.regret()[1, 2, -1]
        assert data.pulls.dims == ("learner", "run", "arm")

    @pytest.mark.parametrize("module", ["pandas", "xarray"])
    def test_without_pandas_or_xarray(self, found, monkeypatch, module):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(rb.ProblemError, match=f"needs {module}, which is not installed; pip install {module}"):
            getattr(found, f"to_{module}")()

    def test_one_run_has_no_spread(self, problem):
        found = simulate(problem, "ucb1", 100, runs=1)
        row = found.summary("ucb1")
        assert np.isnan(row["regret_sd"] + row["regret_stderr"] + row["realised_regret_stderr"]).all()
        assert np.isfinite(row["regret_mean"] + row["regret_max"]).all()
        assert "±" not in repr(found)


class TestLearners:
    def test_objects_specs_and_functions(self, problem):
        found = simulate(
            problem, [RestlessUCB(m=20), "restless-ucb:m=30", RestlessUCB(m=lambda horizon: 20)], 500, runs=3
        )
        assert found.learners == ("restless-ucb:m=20", "restless-ucb:m=30", "restless-ucb#3")
        assert np.array_equal(found.outcomes[0].at, found.outcomes[2].at)

    def test_several_plays_and_unknown_starts(self):
        problem = rb.Problem.random(3, [2, 3, 2], seed=5, plays=2, initial="unknown")
        found = simulate(problem, ["exact", "round-robin"], 400, runs=3)
        assert (found.pulls.sum(axis=2) == 800).all()
        assert (found.regret()[0] == 0).all()
        assert (found.regret()[1, :, -1] > 0).all()

    def test_a_player_who_fails_in_the_middle(self, problem, tmp_path):
        @dataclasses.dataclass(frozen=True)
        class Fails(UCB1):
            name = "fails"

            def plan(self, record, task, rng):
                raise ZeroDivisionError("on purpose")

        with pytest.raises(ZeroDivisionError, match="on purpose"):
            simulate(problem, ["ucb1", Fails()], 100, runs=30, out=tmp_path)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            (dict(learners="restless-ucp"), "did you mean 'restless-ucb'"),
            (dict(learners="ucb1:widht=1"), "did you mean 'width'"),
            (dict(learners=[]), "no learner"),
            (dict(learners=[7]), "7 is not a learner"),
            (dict(learners=["ucb1", "ucb1"]), "given twice"),
            (dict(horizon=0), "horizon is 0"),
            (dict(horizon=2.5), r"horizon is 2\.5"),
            (dict(runs=0), "runs is 0"),
            (dict(runs=True), "runs is True"),
            (dict(seed=-1), "seed is -1"),
            (dict(jobs=0), "jobs is 0"),
            (dict(engine="process"), "did you mean 'processes'"),
            (dict(engine=3), "no engine 3"),
            (dict(ratio=0), "ratio is 0"),
            (dict(ratio=math.inf), "ratio is inf"),
            (dict(trace=True, out="x"), "traces are not stored"),
        ],
    )
    def test_bad_input(self, problem, options, message, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        with pytest.raises(rb.ProblemError, match=message):
            simulate(problem, **(dict(learners="ucb1", horizon=10) | options))
        assert list(tmp_path.iterdir()) == []

    def test_a_learner_that_refuses_leaves_no_folder(self, queue, tmp_path):
        with pytest.raises(rb.ProblemError, match="states"):
            simulate(queue, ["ucb1", "guha"], 10, out=tmp_path / "new")
        assert not (tmp_path / "new").exists()


class TestInterrupts:
    def test_progress(self, problem):
        seen = []
        simulate(problem, ["ucb1", "round-robin"], 50, runs=6, progress=lambda *now: seen.append(now))
        done = [now for now, _ in seen]
        assert {total for _, total in seen} == {12}
        assert done[0] == 0
        assert done[-1] == 12
        assert done == sorted(set(done))

    def test_ctrl_c_hands_over_what_is_finished(self, problem, monkeypatch):
        specs = ["ucb1", "round-robin"]
        whole = simulate(problem, specs, 500, runs=20, seed=9)
        finished = pytest.raises(SimulationInterrupted, match=r"of 40 runs are finished$")
        with no_run_from(12, monkeypatch), finished as caught:
            simulate(problem, specs, 500, runs=20, seed=9, jobs=2, progress=interrupt_at(15))
        stopped = caught.value
        assert isinstance(stopped, KeyboardInterrupt)
        assert 15 <= sum(stopped.finished.values()) <= 24
        assert 6 <= stopped.result.runs <= min(stopped.finished.values())
        assert np.array_equal(stopped.result.regret(), whole.regret()[:, : stopped.result.runs])

    def test_ctrl_c_before_anything_is_finished(self, problem):
        def stop(done, total):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            simulate(problem, "ucb1", 500, runs=20, progress=stop)


def test_the_comparator_is_data():
    one = Comparator("given", 0.5, 0.5, 0.5)
    assert json.loads(json.dumps(one.as_dict())) == {"kind": "given", "gain": 0.5, "lower": 0.5, "upper": 0.5}
    assert not one.optimal
