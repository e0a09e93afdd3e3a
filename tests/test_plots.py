"""Pictures: what is drawn is what was measured."""

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import restless_bandits as rb
from restless_bandits import plots
from restless_bandits._internal.optional_dependencies import install_command
from restless_bandits.learning.estimation import ArmEstimate, Estimate, Mode

matplotlib.use("Agg")


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture(scope="module")
def result():
    return rb.simulate(rb.Problem.builtin("paper-1"), ["ucb1", "round-robin"], 1000, runs=8)


def test_regret_lines(result):
    lines = plots.regret_lines(result)
    assert [line.label for line in lines] == ["ucb1", "round-robin"]
    for line, values in zip(lines, result.regret(), strict=True):
        assert np.array_equal(line.mean, values.mean(axis=0))
        # Student's 97.5 % point with seven degrees of freedom.
        width = 2.364624251 * values.std(axis=0, ddof=1) / np.sqrt(8)
        assert np.allclose(line.high - line.mean, width)
        assert np.allclose(line.mean - line.low, width)


@pytest.mark.parametrize("log", [False, True])
def test_regret(result, ax, log):
    drawn = plots.regret(result, ax=ax, log=log)
    assert drawn is ax
    assert ax.get_xscale() == ("log" if log else "linear")
    assert [line.get_label() for line in ax.get_lines()] == ["ucb1", "round-robin"]
    assert np.array_equal(ax.get_lines()[1].get_ydata(), result.regret()[1].mean(axis=0))
    assert len(ax.collections) == 2


def test_regret_of_several_results(result, ax):
    one, other = result, rb.simulate("paper-2", "round-robin", 20, runs=2)
    drawn = plots.regret([one, other], ax=ax)
    labels = [line.get_label() for line in drawn.get_lines()]
    assert labels == [*(f"{spec}, {one.problem}" for spec in one.learners), f"round-robin, {other.problem}"]
    named = plots.regret({"a": other, "b": other}, ax=ax).get_lines()[len(labels) :]
    assert [line.get_label() for line in named] == ["round-robin, a", "round-robin, b"]
    with pytest.raises(rb.ProblemError, match=r"data is \[3\]; give a SimulationResult"):
        plots.regret([3], ax=ax)


@pytest.mark.parametrize("log", [False, True])
def test_regret_against_a_bracket(ax, log):
    found = rb.simulate(rb.Problem.builtin("queue-5"), ["ucb1", "round-robin"], 500, runs=3)
    plots.regret(found, ax=ax, log=log)
    drawn = ax.get_lines()
    assert [line.get_linestyle() for line in drawn] == ["-", "--"] * 2
    for n, (upper, lower) in enumerate(zip(drawn[::2], drawn[1::2], strict=True)):
        assert np.array_equal(upper.get_ydata(), found.regret(against="upper")[n].mean(axis=0))
        means = found.regret(against="lower")[n].mean(axis=0)
        assert np.array_equal(lower.get_ydata(), means[means > 0] if log else means)
        assert upper.get_color() == lower.get_color()
    assert "dashed" in ax.get_ylabel()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["ucb1", "round-robin"]


def test_what_is_not_positive_is_left_out_on_log_axes(ax):
    slots = np.array([1, 10, 100])
    line = plots.RegretLine("x", slots, np.array([-1.0, 1.0, 2.0]), np.array([-2.0, -1, 1]), np.array([0.0, 2, 3]))
    plots.regret([line], ax=ax, log=True)
    assert ax.get_lines()[0].get_xdata().tolist() == [10, 100]


def test_one_run_has_no_band(ax):
    alone = rb.simulate(rb.Problem.builtin("paper-1"), "ucb1", 100, runs=1)
    (line,) = plots.regret_lines(alone)
    assert np.array_equal(line.low, line.high)
    plots.regret(alone, ax=ax)


def test_raster(ax):
    stretch = rb.walk(rb.Problem.builtin("queue-5"), "round-robin", 60).part(11, 30)
    plots.raster(stretch, ax=ax)
    assert ax.get_lines()[0].get_xdata().tolist() == list(range(11, 41))
    assert np.array_equal(ax.get_lines()[0].get_ydata(), stretch.arms)
    (image,) = ax.get_images()
    shades = np.asarray(image.get_array())
    assert shades.shape == (4, 30)
    assert shades.min() >= 0
    assert shades.max() <= 1


def test_every_arm_of_several_plays_is_in_the_raster(ax):
    problem = rb.Problem.random(3, 2, seed=1, plays=2)
    plots.raster(rb.walk(problem, "round-robin", 3), ax=ax)
    dots = ax.get_lines()[0]
    assert dots.get_xdata().tolist() == [1, 1, 2, 2, 3, 3]
    # Those that waited longest, ties to the lower number.
    assert dots.get_ydata().tolist() == [0, 1, 0, 2, 0, 1]


class TestBelief:
    problem = rb.Problem(
        [rb.Arm.two_state(0.7, 0.8, initial=1, name="a"), rb.Arm.two_state(0.5, 0.6, rewards=(0.8, 0), name="b")]
    )

    def test_paths_are_rows_of_powers(self):
        stretch = rb.walk(self.problem, "whittle", 80, seed=1).part(31, 50)
        for i, path in enumerate(plots.belief_paths(stretch)):
            p11, p01 = self.problem.arms[i].chain[:, 0]
            rest = p01 / (1 - p11 + p01)
            for slot in range(50):
                last, tau = stretch.last_states[slot, i], stretch.elapsed[slot, i]
                # Two states: the law comes nearer to the stationary one by λ a slot.
                good = rest if last < 0 else rest + (p11 - p01) ** tau * ((last == 0) - rest)
                assert path.distributions[slot] == pytest.approx([good, 1 - good], abs=1e-12)
                assert path.seen[slot] == (stretch.states[slot, i] if stretch.pulled[slot, i] else -1)

    def test_it_jumps_when_seen(self, ax):
        laws = np.array([[0.2, 0.8], [0.3, 0.7], [0.7, 0.3]])
        path = plots.BeliefPath("a", np.array([5, 6, 7]), laws, np.array([-1, 0, -1]), np.array([1.0, 0.5]))
        slots, drawn = path.jumps()
        assert slots.tolist() == [5, 6, 6, 7]
        assert drawn.tolist() == [[0.2, 0.8], [0.3, 0.7], [1, 0], [0.7, 0.3]]
        plots.belief([path], ax=ax)
        line, dots = ax.get_lines()
        assert line.get_ydata() == pytest.approx([0.6, 0.65, 1, 0.85])
        assert (dots.get_xdata().tolist(), dots.get_ydata().tolist()) == ([6], [1])

    @pytest.mark.parametrize("arm", [1, "b"])
    def test_the_states_of_one_arm(self, ax, arm):
        stretch = rb.walk(self.problem, "round-robin", 12)
        plots.belief(stretch, arm=arm, ax=ax)
        assert ax.get_ylabel() == "probability, b"
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["seen", "state 1", "state 0 (best)"]
        assert ax.get_lines()[-1].get_xdata().tolist() == [2, 4, 6, 8, 10, 12]

    def test_an_arm_that_was_never_pulled_starts_from_its_initial_state(self):
        for given in ({"setup_cost": 0.1}, {"passive_rewards": [0.5, 0]}, {"active_transitions": [[0, 1], [1, 0]]}):
            arm = rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], initial=0, **given)
            stretch = rb.walk(rb.Problem([rb.Arm.two_state(0.7, 0.8), arm]), "round-robin", 3, seed=1)
            assert plots.belief_paths(stretch)[1].distributions[0] == pytest.approx([0.9, 0.1])

    def test_the_best_state_of_any_order_is_light_and_below(self, ax):
        stretch = rb.walk(rb.Problem.builtin("collapsing"), "whittle", 60, seed=1)
        plots.belief(stretch, arm="bad patient", ax=ax)
        labels = [text.get_text() for text in ax.get_legend().get_texts()]
        assert labels == ["seen", "state 0", "state 1 (best)"]
        (image,) = plots.raster(stretch).get_images()
        assert np.array_equal(np.asarray(image.get_array()), 1 - stretch.states.T)

    def test_no_such_arm(self, ax):
        stretch = rb.walk(self.problem, "round-robin", 3)
        with pytest.raises(rb.ProblemError, match="no arm 'c'"):
            plots.belief(stretch, arm="c", ax=ax)
        with pytest.raises(rb.ProblemError, match="arm is 2; it must be a whole number from 0 to 1"):
            plots.belief(stretch, arm=2, ax=ax)


class TestIndexMap:
    def test_the_numbers_are_the_index(self, ax):
        plots.index_map(rb.Problem.builtin("paper-1"), tau_max=5, ax=ax)
        (image,) = ax.get_images()
        drawn = np.asarray(image.get_array())
        # Liu and Zhao's index of the first arm.
        assert drawn[0] == pytest.approx([0.7, 0.647059, 0.612903, 0.59322, 0.582609], abs=1e-6)
        assert drawn[1] == pytest.approx([0.2, 0.363636, 0.458333, 0.509804, 0.537736], abs=1e-6)
        assert [tick.get_text() for tick in ax.get_yticklabels()][:3] == [
            "arm 1, state 0",
            "arm 1, state 1",
            "arm 2, state 0",
        ]
        assert image.get_extent()[:2] == [0.5, 5.5]
        assert ax.texts[0].get_text() == "0.70"
        assert ax.get_xticks().tolist() == [1, 2, 3, 4, 5]

    def test_an_arm_never_seen_has_a_row(self, ax):
        table, _ = plots.index_tables(TestBelief.problem, 3)[::-1]
        assert table.rows == ("state 0", "state 1", "never seen")
        plots.index_map(table, ax=ax)
        assert [tick.get_text() for tick in ax.get_yticklabels()] == list(table.rows)
        assert ax.get_ylabel() == "b"

    def test_arms_that_react(self, ax):
        arm = rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]], count=3, initial=0)
        (table,) = plots.index_tables(rb.Problem([arm]), 4)
        assert table.rows == ("state 0", "state 1", "never seen", "answer lost")
        assert table.index == pytest.approx(rb.oracles.whittle_index(arm, length=4).table)
        plots.index_map(table, ax=ax)
        assert ax.get_xlabel() == "slots since last seen τ"

    def test_arms_that_are_always_seen_have_another_picture(self, ax):
        problem = rb.Problem.builtin("three-states")
        with pytest.raises(rb.ProblemError, match="does not depend on τ; take state_index_table"):
            plots.index_tables(problem)
        assert plots.index_map(problem, ax=ax).get_xlabel() == "state"


class TestStateIndices:
    def test_kinds_by_their_highest_index(self, ax):
        pair = rb.Arm([[0.9, 0.1], [0.4, 0.6]], [0, 0.1], name="pair")
        problem = rb.Problem([pair, *rb.load_problem("three-states").kinds], observed="all")
        table = plots.state_index_table(problem)
        assert table.names == ("cyclic", "pair")
        assert table.index[0] == pytest.approx([0.37401552, 0.181994233, -0.02115716], abs=5e-9)
        # A pull changes nothing: the index is the reward.
        assert table.index[1] == pytest.approx([0, 0.1, np.nan], abs=1e-9, nan_ok=True)
        plots.state_indices(table, ax=ax)
        assert [text.get_text() for text in ax.texts] == ["0.37", "0.18", "-0.02", "0.00", "0.10"]
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["cyclic", "pair"]
        lagrangian = plots.state_index_table(problem, "lp-index")
        assert lagrangian.label == "Lagrangian index"
        assert lagrangian.index[lagrangian.names.index("pair"), 2:] == pytest.approx([np.nan], nan_ok=True)

    def test_very_many_arms(self, ax):
        problem = rb.Problem.random_reacting(500, kind="health", seed=1)
        table = plots.state_index_table(problem)
        highest = table.index.max(axis=1)
        assert (np.diff(highest) <= 0).all()
        plots.state_indices(table, ax=ax)
        drawn = np.asarray(ax.get_images()[0].get_array())
        assert drawn.shape == (plots.MOST_ROWS, 2)
        assert (drawn[0].max(), drawn[-1].max()) == (highest[0], highest[-1])
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["1", "500"]

    def test_set_up_costs_and_arms_without_an_index(self, ax):
        arm = rb.Arm([[0.9, 0.1], [0.4, 0.6]], [1, 0], active_transitions=[[0.3, 0.7], [0.1, 0.9]], setup_cost=0.1)
        plots.state_indices(rb.Problem([arm], observed="all"), ax=ax)
        assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "0, pulled", "1, pulled"]
        passive = [[0.005, 0.793, 0.202], [0.027, 0.558, 0.415], [0.736, 0.249, 0.015]]
        active = [[0.718, 0.254, 0.028], [0.347, 0.097, 0.556], [0.015, 0.956, 0.029]]
        odd = rb.Arm(passive, [0.699, 0.362, 0.715], active_transitions=active, name="odd")
        plots.state_indices(rb.Problem([odd], observed="all"), ax=ax)
        assert [tick.get_text() for tick in ax.get_yticklabels()] == ["odd (not indexable)"]

    def test_mistakes(self):
        with pytest.raises(rb.ProblemError, match="there is no index 'id'; choose from whittle, lp-index, myopic"):
            plots.state_index_table(rb.Problem.builtin("three-states"), "id")
        with pytest.raises(rb.ProblemError, match="give a problem with observed = 'all'"):
            plots.state_index_table(rb.Problem.builtin("paper-1"))


def test_gains_against_the_number_of_arms(ax):
    problem = rb.Problem.builtin("three-states")
    lines = plots.gain_lines(problem, [10, 20], ["exact", "whittle"])
    assert [line.label for line in lines] == ["bound of any policy", "exact", "whittle"]
    bound, exact, whittle = lines
    assert bound.gain == pytest.approx([0.12380017] * 2, abs=1e-8)
    assert exact.gain[0] == pytest.approx(rb.solve(problem.with_arms(10)).gain / 10)
    assert (exact.stderr[0], bool(whittle.stderr.min() > 0)) == (0.0, True)
    assert whittle.gain[0] <= exact.gain[0] + 5 * whittle.stderr[0]
    plots.gains(lines, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["bound of any policy", "exact", "whittle"]
    assert ax.get_lines()[-1].get_ydata() == pytest.approx(bound.gain)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["10", "20"]
    with pytest.raises(rb.ProblemError, match="give observed = 'all'"):
        plots.gain_lines(rb.Problem.builtin("paper-1"), [10])


def test_occupancy(ax):
    data = rb.occupancy(rb.Problem.builtin("three-states").with_arms(1000), "whittle", 20, state=1)
    plots.occupancy(data, ax=ax)
    drawn = ax.get_lines()
    assert drawn[0].get_ydata() == pytest.approx(data.simulated[:, 0])
    assert drawn[1].get_ydata() == pytest.approx(data.fluid[:, 0])
    labels = [text.get_text() for text in ax.get_legend().get_texts()]
    assert labels == ["state 0", "state 1", "state 2", "fluid path"]
    plots.occupancy(rb.occupancy("three-states", "id", 5), ax=ax)


def test_transitions_of_arms_that_react(ax):
    problem = rb.Problem.builtin("collapsing")
    env = rb.gym.RestlessBanditEnv(problem, horizon=None)
    found = rb.estimate(rb.gym.play(env, "round-robin", slots=60, seed=1).agent.record, strict=False)
    moves = plots.transition_estimates(found, problem)
    assert [move.move for move in moves[:4]] == ["0→1\nat rest", "1→0\nat rest", "0→1\npulled", "1→0\npulled"]
    assert [move.truth for move in moves[:4]] == [0.03, 0.03, 0.04, 0.01]
    assert moves[2].value == found.arms[0].active_transitions[0, 1]
    plots.transitions(found, problem, ax=ax)
    assert ax.containers[0].lines[0].get_ydata() == pytest.approx([move.value for move in moves])


def test_transitions(ax):
    problem = rb.Problem.builtin("queue-5")
    chains = [arm.chain for arm in problem.arms]
    arms = tuple(
        ArmEstimate(f"arm {i}", 10, (Mode(chain + 0.01, np.full((5, 5), 0.1), 0.0),), np.ones(5), np.ones(5), True, ())
        for i, chain in enumerate(chains)
    )
    moves = plots.transition_estimates(Estimate(arms), problem)
    assert [move.move for move in moves[:8]] == ["0→1", "1→0", "1→2", "2→1", "2→3", "3→2", "3→4", "4→3"]
    assert len(moves) == 32
    for move in moves:
        s, k = (int(state) for state in move.move.split("→"))
        truth = chains[problem.arm_number(move.arm)][s, k]
        assert move.truth == truth
        assert move.value == pytest.approx(truth + 0.01)
        assert move.high == pytest.approx(min(1, truth + 0.01 + 0.1 * 1.959964))
        assert move.low == pytest.approx(max(0, truth + 0.01 - 0.1 * 1.959964))
    plots.transitions(Estimate(arms), problem, ax=ax)
    bars = ax.containers[0]
    assert bars.lines[0].get_ydata() == pytest.approx([move.value for move in moves])
    segments = bars.lines[2][0].get_segments()
    assert [segment[1, 1] for segment in segments] == pytest.approx([move.high for move in moves])
    assert sum(text.get_text() == "truth" for text in ax.get_legend().get_texts()) == 1


def test_transitions_without_the_truth(ax):
    plots.transitions([plots.TransitionEstimate("a", "0→1", 0.5, 0.4, 0.6)], ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["estimate, 95% interval"]


def test_estimates(ax):
    groups = [plots.EstimateGroup("a", 0.5, np.linspace(0.4, 0.6, 41)), plots.EstimateGroup("b", 0.2, np.full(3, 0.2))]
    plots.estimates(groups, ax=ax)
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["a", "b"]


def test_running_times(ax):
    plots.running_times({"x": {2: 0.1, 3: 0.2}}, others={"x": {2: 4, 3: 5}}, ax=ax)
    assert ax.get_yscale() == "log"
    assert len(ax.get_lines()) == 2


def test_without_axes_a_figure_is_made_and_no_setting_is_changed(result):
    before = dict(matplotlib.rcParams)
    with plots.style():
        made = plots.regret(result)
    assert made.figure is not None
    assert dict(matplotlib.rcParams) == before
    import matplotlib.pyplot as plt

    plt.close(made.figure)


def test_without_matplotlib_a_sentence():
    code = (
        "import sys; sys.modules['matplotlib'] = None; sys.modules['matplotlib.pyplot'] = None\n"
        "import restless_bandits as rb\n"
        "try:\n    rb.plots.regret([])\nexcept rb.ProblemError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"a picture needs matplotlib; {install_command('plots')} brings it\n"
