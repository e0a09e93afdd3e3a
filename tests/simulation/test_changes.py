"""Problems that change: held against laws propagated one slot and one step at a time, and against closed forms."""

import json
import pickle

import numpy as np
import pytest
from benchmarks.changing import HORIZON, problems
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

import restless_bandits as rb
from restless_bandits.cli import main
from restless_bandits.model import markov
from restless_bandits.model.problem import Piece
from restless_bandits.simulation import Comparator, simulate
from tests import reference
from tests.optional import needed

FALSE_ALARM = 1e-6
PAPER = rb.Problem.builtin("paper-1")
ALWAYS, NEVER = [[1.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]]


def changing(seed, n_arms=3, n_states=3, changes=(7, 8, 40, 41, 200), **options):
    """A random problem whose arms get other chains, other rewards, or both, one after the other."""
    problem = rb.Problem.random(n_arms, n_states, seed=seed, **options)
    other = rb.Problem.random(len(changes), n_states, seed=seed + 1, kind="general")
    kinds = ({"transitions", "rewards"}, {"transitions"}, {"rewards"})
    changed = [
        rb.Change(slot, i % n_arms, **{key: getattr(to, key) for key in kinds[i % 3]})
        for i, (slot, to) in enumerate(zip(changes, other.arms, strict=True))
    ]
    return rb.Problem(problem.arms, changes=changed, plays=problem.plays)


def laws_of(problem, arms, states):
    """What the reference says of every observation of a run with one play."""
    initial = [
        markov.stationary(arm.chain) if arm.initial is None else np.eye(arm.n_states)[arm.initial]
        for arm in problem.arms
    ]
    changes = [
        (change.slot, problem.arm_number(change.arm), change.transitions)
        for change in problem.changes
        if change.transitions is not None
    ]
    return reference.filtered_laws([arm.chain for arm in problem.arms], changes, initial, arms, states)


def rewards_in(problem, slot, arm):
    return next(p for p in reversed(problem.pieces) if p.first <= slot).problem.arms[arm].rewards


class TestSimulation:
    @settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(seed=st.integers(0, 10_000), initial=st.sampled_from(["random", "unknown"]))
    @pytest.mark.parametrize("spec", ["round-robin", "ucb1", "dsee"])
    def test_expected_rewards_are_those_of_laws_propagated_step_by_step(self, spec, seed, initial):
        problem = changing(seed, initial=initial)
        result = simulate(problem, spec, 260, runs=2, seed=seed, trace=True, checkpoints=260, comparator=0.5, jobs=1)
        trace = result.traces[spec]
        for run in range(2):
            arms, states = trace.arms[run, :, 0], trace.states[run, :, 0]
            laws = laws_of(problem, arms.tolist(), states.tolist())
            means = [distribution @ rewards_in(problem, t + 1, arms[t]) for t, distribution in enumerate(laws)]
            assert result.expected_reward[0, run] == pytest.approx(np.cumsum(means), abs=1e-9)

    def test_states_and_rewards_have_these_laws(self):
        problem = changing(5, n_arms=4, initial="unknown")
        result = simulate(problem, "round-robin", 230, runs=150, seed=1, trace=True, comparator=0.5)
        trace = result.traces["round-robin"]
        # Arms come in turn, so all runs have the same waits: by slot, counts against what they should be on average.
        best, expected, spread, paid, means, variance = np.zeros((6, 230))
        for run in range(150):
            arms, states = trace.arms[run, :, 0], trace.states[run, :, 0]
            laws = laws_of(problem, arms.tolist(), states.tolist())
            for t, distribution in enumerate(laws):
                best[t] += states[t] == 0
                expected[t] += distribution[0]
                spread[t] += distribution[0] * (1 - distribution[0])
                mean = rewards_in(problem, t + 1, arms[t])[states[t]]
                paid[t] += trace.rewards[run, t, 0]
                means[t] += mean
                variance[t] += mean * (1 - mean)
        # A martingale of bounded steps: each standardised sum is nearly normal, and 230 of them make a χ².
        states_off = ((best - expected) ** 2 / spread).sum()
        rewards_off = ((paid - means) ** 2 / variance).sum()
        assert stats.chi2.sf(states_off, 230) > FALSE_ALARM
        assert stats.chi2.sf(rewards_off, 230) > FALSE_ALARM

    def test_the_step_into_the_slot_is_the_first_that_the_new_chain_takes(self):
        arms = [rb.Arm(NEVER, [1, 0], initial=1)]
        problem = rb.Problem(arms, changes=[rb.Change(5, 0, transitions=ALWAYS), rb.Change(8, 0, rewards=[0, 0])])
        trace = simulate(problem, "round-robin", 10, runs=1, trace=True).traces["round-robin"]
        assert trace.states[0, :, 0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]
        assert trace.rewards[0, :, 0].tolist() == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]

    @pytest.mark.parametrize("spec", ["likelihood-ucb", "ts-9", "restless-ucb", "whittle", "rca"])
    def test_a_change_to_the_same_is_none(self, spec):
        same = rb.Change(300, 1, PAPER.arms[1].transitions, PAPER.arms[1].rewards)
        problem = rb.Problem(PAPER.arms, changes=[same])
        # The same draws for both, which differ in content.
        vars(problem)["content"] = PAPER.content
        still, moved = (simulate(one, spec, 700, runs=2, trace=True, checkpoints=50) for one in (PAPER, problem))
        assert np.array_equal(still.traces[spec].arms, moved.traces[spec].arms)
        assert np.array_equal(still.traces[spec].rewards, moved.traces[spec].rewards)
        assert moved.expected_reward == pytest.approx(still.expected_reward, abs=1e-9)

    @pytest.mark.parametrize("spec", ["likelihood-ucb", "ts-9", "restless-ucb", "whittle", "rca"])
    def test_nothing_is_different_before_the_first_change(self, spec):
        problem = changing(2, 2, 2, changes=(200, 300))
        bare = problem.pieces[0].problem
        vars(bare)["content"] = problem.content
        still, moved = (simulate(one, spec, 250, runs=2, trace=True, comparator=0.5) for one in (bare, problem))
        for one in ("arms", "states", "rewards"):
            before, after = (getattr(result.traces[spec], one)[:, :199] for result in (still, moved))
            assert np.array_equal(before, after)

    def test_several_plays(self):
        problem = changing(3, n_arms=4, plays=2)
        result = simulate(problem, ["round-robin", "whittle"], 300, runs=3, comparator=1.0)
        assert result.pulls.sum(axis=2).tolist() == [[600] * 3] * 2

    def test_it_travels_to_other_processes(self):
        problem = changing(4)
        again = pickle.loads(pickle.dumps(problem))
        assert (again, again.content) == (problem, problem.content)
        here, there = (simulate(one, "ucb1", 250, runs=2, comparator=0.5, jobs=1) for one in (problem, again))
        assert np.array_equal(here.realised_reward, there.realised_reward)


class TestRegret:
    def test_is_against_the_optimum_of_each_piece(self):
        problem = changing(1, 2, 2, changes=(101, 151))
        result = simulate(problem, "round-robin", 200, runs=2, checkpoints=[50, 100, 101, 150, 200])
        gains = [rb.oracles.exact(piece.problem).gain for piece in problem.pieces]
        earned = np.cumsum([gains[0]] * 100 + [gains[1]] * 50 + [gains[2]] * 50)[result.checkpoints - 1]
        assert result.comparator.earned(result.checkpoints) == pytest.approx(earned)
        assert result.kinds == ("realised", "expected")
        for kind, sums in (("realised", result.realised_reward), ("expected", result.expected_reward)):
            assert result.regret(kind) == pytest.approx(earned - sums)
        assert result.comparator.gain == pytest.approx(earned[-1] / 200)
        assert [first for first, _ in result.comparator.pieces] == [1, 101, 151]

    def test_a_change_beyond_the_horizon_takes_no_part(self):
        result = simulate(changing(1, 2, 2, changes=(101, 151)), "ucb1", 120, runs=1)
        assert [first for first, _ in result.comparator.pieces] == [1, 101]

    def test_gaps_are_left_out_and_the_reason_is_said(self):
        result = simulate(changing(1, 2, 2, changes=(20,)), "ucb1", 30, runs=1)
        with pytest.raises(rb.ProblemError, match="the problem changes"):
            result.regret("gap")

    def test_a_gain_that_is_given_holds_throughout(self):
        result = simulate(changing(1, 2, 2, changes=(20,)), "ucb1", 30, runs=1, comparator=0.25)
        assert result.comparator == Comparator("given", 0.25, 0.25, 0.25)

    def test_stored_results_keep_the_pieces(self, tmp_path):
        result = simulate(changing(1, 2, 2, changes=(20,)), "ucb1", 30, runs=2, ratio=0.9)
        result.save(tmp_path / "result.npz")
        again = rb.SimulationResult.load(tmp_path / "result.npz")
        assert again.comparator == result.comparator
        assert np.array_equal(again.regret(), result.regret())
        assert [piece["first"] for piece in again.as_dict()["comparator"]["pieces"]] == [1, 20]

    def test_runs_are_found_again_in_their_folder_and_not_taken_for_those_of_another(self, tmp_path):
        problem = changing(1, 2, 2, changes=(20,))
        first = simulate(problem, "ucb1", 30, runs=2, out=tmp_path)
        again = simulate(problem, "ucb1", 30, runs=2, out=tmp_path)
        assert np.array_equal(first.seconds, again.seconds)
        simulate(problem.pieces[0].problem, "ucb1", 30, runs=2, out=tmp_path)
        assert len(list(tmp_path.glob("*/key.json"))) == 2

    def test_an_informed_player_plays_each_piece_by_its_policy(self):
        first, second = PAPER.arms
        changes = [
            rb.Change(2001, 0, second.transitions, second.rewards),
            rb.Change(2001, 1, first.transitions, first.rewards),
        ]
        problem = rb.Problem(PAPER.arms, changes=changes)
        result = simulate(problem, ["whittle", "exact"], 4000, runs=100, seed=3)
        assert all(lengths.tolist() == [2000, 2000] for lengths in result.plan_lengths["whittle"])
        # Whittle's policy is optimal here: it loses no more than its start, again after the change, and noise.
        noise = stats.norm.isf(FALSE_ALARM) * result.summary("exact")["regret_stderr"][-1]
        assert (np.abs(result.regret("expected")[:, :, -1].mean(axis=1)) < noise + 4).all()


class TestProblem:
    def test_toml_and_back(self):
        for problem in (changing(1), changing(2, initial="unknown"), rb.Problem(PAPER.arms, changes=[])):
            again = rb.Problem.from_toml(problem.to_toml())
            assert again == problem
            assert again.content == problem.content

    def test_content_of_problems_without_changes_is_what_it_was(self):
        assert rb.Problem(PAPER.arms, changes=()).content == PAPER.content
        assert PAPER.content.startswith("499410ae")

    def test_content_tells_changes_apart(self):
        changes = [
            rb.Change(20, 0, rewards=[0.5, 0]),
            rb.Change(21, 0, rewards=[0.5, 0]),
            rb.Change(20, 1, rewards=[0.5, 0]),
            rb.Change(20, 0, rewards=[0.5, 0.1]),
            rb.Change(20, 0, transitions=ALWAYS),
        ]
        assert len({rb.Problem(PAPER.arms, changes=[one]).content for one in changes} | {PAPER.content}) == 6

    def test_names_and_numbers_mean_the_same(self):
        by_name, by_number = (
            rb.Problem(PAPER.arms, changes=[rb.Change(9, arm, rewards=[1, 0])]) for arm in ("arm 2", 1)
        )
        assert by_name == by_number
        assert hash(by_name) == hash(by_number)

    def test_pieces(self):
        problem = rb.Problem(
            PAPER.arms, changes=[rb.Change(30, 1, rewards=[0.2, 0]), rb.Change(20, 0, transitions=ALWAYS)]
        )
        assert [piece.first for piece in problem.pieces] == [1, 20, 30]
        assert problem.pieces[0].problem.arms == PAPER.arms
        assert problem.pieces[2].problem.arms[0].transitions.tolist() == ALWAYS
        assert problem.pieces[2].problem.arms[1].rewards.tolist() == [0.2, 0]
        assert PAPER.pieces == (Piece(1, PAPER),)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda: rb.Change(1, 0, rewards=[1, 0]), "slot is 1; it must be"),
            (lambda: rb.Change(5, 0), "nothing changes"),
            (lambda: rb.Change(5, 1.5, rewards=[1, 0]), "give its number or its name"),
            (lambda: rb.Change(5, 2, rewards=[1, 0]), "there is no arm 2"),
            (lambda: rb.Change(5, "arm 3", rewards=[1, 0]), "there is no arm 'arm 3'"),
            (lambda: rb.Change(5, 0, rewards=[1, 0, 0]), "change at slot 5: arm 'arm 1': transitions has 2 rows"),
            (lambda: rb.Change(5, 0, rewards=[2, 0]), r"change at slot 5: arm 'arm 1': rewards\[0\] is 2"),
            (lambda: rb.Change(5, 0, transitions=[[0.5, 0.6], [0, 1]]), r"transitions\[0\] sums to 1.1"),
            (lambda: "soon", r"changes\[0\] is 'soon'"),
        ],
    )
    def test_mistakes_are_told_in_a_sentence(self, change, message):
        with pytest.raises(rb.ProblemError, match=message):
            rb.Problem(PAPER.arms, changes=[change()])

    def test_twice_at_once_and_tables_are_refused(self):
        with pytest.raises(rb.ProblemError, match="changes twice at slot 5"):
            rb.Problem(PAPER.arms, changes=[rb.Change(5, 0, rewards=[1, 0])] * 2)
        table = rb.TableArm([[[0.5, 0.5], [0.5, 0.5]]], [1, 0], initial=0)
        with pytest.raises(rb.ProblemError, match="is a table of distributions, which cannot change"):
            rb.Problem([table], changes=[rb.Change(5, 0, rewards=[1, 0])])
        fixed = rb.Arm.two_state(0.5, 0.5, reward_law="fixed")
        rb.Problem([fixed], changes=[rb.Change(5, 0, transitions=ALWAYS)])
        with pytest.raises(rb.ProblemError, match="has fixed rewards, which learners take never to change"):
            rb.Problem([fixed], changes=[rb.Change(5, 0, rewards=[0.5, 0])])


class TestElsewhere:
    """Whoever else meets a problem that changes plays it, or says that it is for problems that do not."""

    SUDDEN = rb.Problem(
        [rb.Arm(NEVER, [1, 0], initial=1), rb.Arm.two_state(0.5, 0.5, initial=1)],
        changes=[rb.Change(5, 0, transitions=ALWAYS), rb.Change(8, 0, rewards=[0, 0])],
    )

    def test_walks(self):
        walked = rb.walk(self.SUDDEN, "round-robin", 10)
        assert walked.states[:, 0].tolist() == [1, 1, 1, 1, 0, 0, 0, 0, 0, 0]

    def test_environments_change_in_every_episode(self):
        needed("gymnasium")
        env = rb.gym.RestlessBanditEnv(self.SUDDEN, horizon=10)
        for _ in range(2):
            env.reset(seed=1)
            assert [env.step(0)[1] for _ in range(10)] == [0, 0, 0, 0, 1, 1, 1, 0, 0, 0]

    def test_learners_are_not_told(self):
        task = self.SUDDEN.task(reveal=["rewards"])
        assert task == self.SUDDEN.pieces[0].problem.task(reveal=["rewards"])

    @pytest.mark.parametrize(
        "use",
        [
            rb.solve,
            rb.check,
            *(rb.oracles.find_oracle(name) for name in ("exact", "whittle", "relaxation", "best-arm", "auto")),
            lambda problem: rb.oracles.policy("myopic", problem),
            rb.oracles.relaxation_bound,
            lambda problem: rb.evaluate(problem, rb.policies.Cycle()),
            lambda problem: rb.theory.regret_bound(problem, 100),
            lambda problem: rb.theory.event_probability(problem, 100),
            rb.theory.regret_limit,
            lambda problem: rb.plots.belief(rb.walk(problem, "round-robin", 10)),
            rb.plots.index_map,
        ],
    )
    def test_what_is_for_problems_that_do_not_change_says_so(self, use):
        with pytest.raises(
            rb.ProblemError, match=r"changes at slot 5, and .* is for problems that do not; take a piece"
        ):
            use(self.SUDDEN)

    def test_the_command_line_treats_a_piece_and_says_which(self, tmp_path, capsys, monkeypatch):
        path = str(tmp_path / "mine.toml")
        changing(1, 2, 2, changes=(20, 30)).save(path)

        def restless(*words):
            monkeypatch.setattr("sys.argv", ["restless", *words])
            with pytest.raises(SystemExit) as stop:
                main()
            return stop.value.code, *capsys.readouterr()

        gains = []
        for number, words in enumerate(([], ["--piece", "2"]), start=1):
            code, out, err = restless("solve", path, "--json", *words)
            assert (code, f"changes at slots 20, 30; this is piece {number} of 3" in err) == (0, True)
            gains.append(json.loads(out)["gain"])
        assert gains[0] != gains[1]
        code, _, err = restless("check", path, "--piece", "4")
        assert (code, "--piece is 4; the problem has pieces 1 to 3" in err) == (2, True)
        code, out, _ = restless("simulate", path, "--learner", "ucb1", "--horizon", "40", "--runs", "2", "--jobs", "1")
        assert (code, "from slot 20 on" in out) == (0, True)


def test_the_problems_of_the_benchmark_change_five_times():
    found = problems()
    assert len(found) == 4
    for problem in found.values():
        assert len(problem.pieces) == 6
        assert problem.pieces[-1].first <= HORIZON
        assert rb.Problem.from_toml(problem.to_toml()) == problem
