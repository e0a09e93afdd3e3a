"""Pictures: what is drawn is what was measured."""

import subprocess
import sys

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits import plots

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")


@pytest.fixture
def ax():
    figure = matplotlib.figure.Figure()
    return figure.subplots()


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
    assert done.stdout == "pictures need matplotlib; pip install 'restless-bandits[plots]' brings it\n"
