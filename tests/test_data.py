"""Own data: what is read, what is refused and in which words; fits of known chains; replays against a slow loop."""

import json
import sys

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.cli import main
from restless_bandits.data import fitting
from restless_bandits.estimation import Mode
from restless_bandits.record import Record

BEYOND = 5.0
"""Standard errors that a normal variable exceeds, to either side, with a chance below 6e-7."""

THREE = rb.Problem(
    [
        rb.Arm([[0.8, 0.2, 0], [0.1, 0.7, 0.2], [0, 0.25, 0.75]], [0.9, 0.5, 0.1], name="alpha"),
        rb.Arm([[0.6, 0.4, 0], [0.3, 0.4, 0.3], [0, 0.3, 0.7]], [1.0, 0.3, 0.0], name="beta"),
    ]
)


def paths(problem, slots, seed):
    """States of all arms in all slots, drawn with NumPy alone."""
    rng = np.random.default_rng(seed)
    states = np.empty((slots, problem.n_arms), dtype=np.int64)
    for i, arm in enumerate(problem.arms):
        state = 0
        for t, u in enumerate(rng.random(slots)):
            state = int(np.searchsorted(np.cumsum(arm.transitions[state])[:-1], u, side="right"))
            states[t, i] = state
    return states


def logged(problem, states, seed, share=1.0):
    """The trace of looks at random slots, with Bernoulli rewards."""
    rng = np.random.default_rng(seed)
    there = rng.random(states.shape) < share
    times, arms = np.nonzero(there)
    seen = states[times, arms]
    means = np.array([arm.rewards[seen] for arm in problem.arms])[arms, np.arange(len(arms))]
    names = np.array([arm.name for arm in problem.arms])[arms]
    return rb.data.trace(times, names, state=seen, reward=(rng.random(len(seen)) < means).astype(float))


@pytest.fixture
def write(tmp_path):
    def write(text, name="trace.csv"):
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


@pytest.fixture
def restless(capsys, monkeypatch):
    """Run the command in this process: exit code, stdout, stderr, as ``main`` leaves them."""

    def run(*words):
        monkeypatch.setattr(sys, "argv", ["restless", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        captured = capsys.readouterr()
        return stopped.value.code or 0, captured.out, captured.err

    return run


class TestReading:
    def test_columns_in_any_order_and_gaps(self, write):
        trace = rb.data.read_trace(write("arm,state,time\nb,0,3\na,1,3\nb,1,5\na,0,9\n"))
        assert trace.names == ("b", "a")
        assert trace.times.tolist() == [3, 3, 5, 9]
        assert trace.arms.tolist() == [0, 1, 0, 1]
        assert trace.states.tolist() == [0, 1, 1, 0]
        assert trace.rewards.tolist() == [1.0, 0.0, 0.0, 1.0]
        assert trace.reward_laws == ("fixed", "fixed")
        assert trace.source == "trace.csv"

    @pytest.mark.parametrize(
        "text",
        [
            "time;arm;value;reward\n0;10;1.5;0.5\n1;10;2.5;0.25\n0;9;0.5;1\n",
            "\ufeffTime, Arm ,Value,Reward\r\n0,10,1.5,0.5\r\n\r\n1,10,2.5,0.25\r\n0,9,0.5,1\r\n",
            'time\tarm\tvalue\treward\n0.0\t"10"\t1.5\t0.5\n1e0\t 10 \t2.5\t0.25\n0\t9\t0.5\t1',
        ],
    )
    def test_semicolons_tabs_byte_order_marks_quotes(self, write, text):
        trace = rb.data.read_trace(write(text), edges=[1, 2])
        assert trace.names == ("9", "10")  # arms by number in the order of their numbers
        assert trace.times.tolist() == [0, 0, 1]
        assert trace.states.tolist() == [2, 1, 0]
        assert trace.rewards.tolist() == [1.0, 0.5, 0.25]
        assert trace.edges == (2.0, 1.0)

    def test_more_lines_than_a_chunk(self, write, monkeypatch):
        monkeypatch.setattr("restless_bandits.data.traces.CHUNK", 3)
        lines = [f"{t},{'ab'[t % 2]},{t % 3}" for t in range(10)]
        trace = rb.data.read_trace(write("\n".join(["time,arm,state", *lines])))
        assert trace.states.tolist() == [t % 3 for t in range(10)]
        assert trace.arms.tolist() == [t % 2 for t in range(10)]
        with pytest.raises(rb.ProblemError, match=r"trace.csv, line 9: state is 'x'"):
            rb.data.read_trace(write("\n".join(["time,arm,state", *lines[:7], "7,b,x", *lines[8:]])))

    def test_values_on_an_edge_are_better(self):
        high = rb.data.trace(range(5), [0] * 5, value=[1, 2, 3, 4, 5], edges=[4, 2])
        assert high.states.tolist() == [2, 1, 1, 0, 0]
        low = rb.data.trace(range(5), [0] * 5, value=[1, 2, 3, 4, 5], edges=[2, 4], low_is_better=True)
        assert low.states.tolist() == [0, 0, 1, 1, 2]
        assert (high.edges, low.edges) == ((4.0, 2.0), (2.0, 4.0))

    def test_quantiles(self):
        values = np.random.default_rng(0).permutation(12).astype(float)
        trace = rb.data.trace(range(12), [0] * 12, value=values, states=3)
        assert trace.states.tolist() == [0 if v >= 8 else 1 if v >= 4 else 2 for v in values]
        again = rb.data.trace(range(12), [0] * 12, value=values, edges=trace.edges)
        assert again.states.tolist() == trace.states.tolist()
        # Two atoms are two states however unequal they are; two states where nobody says how many.
        few = rb.data.trace(range(10), [0] * 10, value=[0] * 9 + [1])
        assert few.states.tolist() == [1] * 9 + [0]
        mirrored = rb.data.trace(range(10), [0] * 10, value=[0] * 9 + [1], low_is_better=True)
        assert mirrored.states.tolist() == [0] * 9 + [1]

    def test_slots_of_a_given_length(self):
        trace = rb.data.trace([30.5, 90.1, 149.9, 331.0], ["a"] * 4, state=[0, 1, 0, 1], slot=60)
        assert trace.times.tolist() == [0, 1, 2, 5]
        nanoseconds = rb.data.trace([1700000000000000000, 1700000000000000001], [0, 0], state=[0, 1])
        assert np.diff(nanoseconds.times).tolist() == [1]

    def test_rewards(self):
        columns = dict(time=[0, 1, 2, 3], arm=[0] * 4, state=[0, 1, 2, 1])
        assert rb.data.trace(**columns).levels == (1.0, 0.5, 0.0)
        assert rb.data.trace(**columns, rewards=[1, 0.4, 0]).rewards.tolist() == [1.0, 0.4, 0.0, 0.4]
        scaled = rb.data.trace(**columns, reward=[5, 10, 0, 0], reward_range=(0, 10))
        assert (scaled.rewards.tolist(), scaled.levels) == ([0.5, 1.0, 0.0, 0.0], None)
        over = rb.data.trace(**columns, reward=[5, 10, 0, 0], rewards=[1, 0.4, 0])
        assert over.rewards.tolist() == [1.0, 0.4, 0.0, 0.4]
        laws = [
            rb.data.trace(**columns, reward=reward).reward_laws[0]
            for reward in ([1, 1, 0, 1], [0.5, 0.2, 0, 0.2], [0.5, 0.2, 0, 0.3])
        ]
        assert laws == ["bernoulli", "fixed", "bernoulli"]

    def test_record_is_that_of_observe_and_skip(self):
        trace = logged(THREE, paths(THREE, 60, seed=3), seed=4, share=0.4)
        later = rb.data.trace(trace.times + 7, trace.arms, state=trace.states, reward=trace.rewards)
        slow = Record(later.sizes, [None] * 2)
        for slot in range(int(later.times[0]), int(later.times[-1]) + 1):
            here = later.times == slot
            if here.any():
                slow.observe(later.arms[here].tolist(), later.states[here].tolist(), later.rewards[here].tolist())
            else:
                slow.skip(1)
        assert later.record().to_dict() == slow.to_dict()
        assert np.array_equal(later.record().flat_visits, slow.flat_visits)
        assert np.array_equal(later.record([1]).counts(0), slow.counts(1))

    def test_an_arm_has_the_states_seen_of_it(self):
        trace = rb.data.trace([0, 1, 2, 0, 1, 2], list("aaabbb"), state=[0, 1, 2, 1, 2, 1])
        assert trace.spans == ((0, 2), (1, 2))
        assert trace.of_arm(1)[1].tolist() == [0, 1, 0]
        assert trace.of_arm(1)[2].tolist() == [0.5, 0.0, 0.5]


HEAD = "time,arm,state\n"
BAD_FILES = [
    ("", {}, "trace.csv is empty; begin it with"),
    ("\n\n", {}, "trace.csv is empty; begin it with"),
    (HEAD, {}, "trace.csv holds no observations, only a header"),
    ("0,a,1\n", {}, "trace.csv has no header; begin it with"),
    (",time,arm,state\n0,0,a,1\n", {}, "trace.csv: column 1 has no name in the header; leave the column out (pandas"),
    ("time,arm,state,\n0,a,1,\n", {}, "trace.csv: column 4 has no name in the header"),
    ("time,arm,stat\n0,a,1\n", {}, "trace.csv has an unknown column 'stat'; did you mean 'state'?"),
    ("time,arm,state,host\n", {}, "unknown column 'host'; remove it, or rename it: choose from time, arm"),
    ("time,arm,state,state\n", {}, "trace.csv has two columns 'state'; keep one"),
    ("time,state\n0,1\n", {}, "trace.csv has no column 'arm'; it needs"),
    ("time,arm\n0,a\n", {}, "trace.csv has neither a state nor a value column; give one"),
    ("time,arm,state,value\n", {}, "trace.csv has both a state and a value column; give one"),
    (HEAD + "0,a,1\n1,a\n", {}, "trace.csv, line 3 has 2 cells, the header has 3"),
    (HEAD + "0,a,1\n\n1,,1\n", {}, "trace.csv, line 4: arm is missing; name it"),
    (HEAD + "0,a,\n", {}, "trace.csv, line 2: state is missing; leave the whole line out"),
    (HEAD + "0,a,good\n", {}, "line 2: state is 'good', which is not a number; give a whole number, 0 for the best"),
    (HEAD + "0,a,1.5\n", {}, "line 2: state is 1.5, which is not whole"),
    (HEAD + "0,a,nan\n", {}, "line 2: state is nan; leave the line out"),
    (HEAD + "0,a,-1\n", {}, "line 2: state is -1, which is negative; states count from 0, the best"),
    (HEAD + "0,a,1\n1,a,2\n", {}, "no line has state 0, but there is a state 1; number the states"),
    (HEAD + "0,a,0\n1,a,2\n", {}, "no line has state 1, but there is a state 2; number the states"),
    (HEAD + "0,a,0\n1,a,0\n", {}, "only one state was ever seen"),
    (HEAD + "".join(f"{k},a,{k}\n" for k in range(51)), {}, "there are 51 states, more than 50"),
    (HEAD + "now,a,1\n", {}, "line 2: time is 'now', which is not a number; give the slot"),
    (HEAD + "-3,a,1\n", {}, "line 2: time is -3, which is negative"),
    (HEAD + "0,a,0\n0.5,a,1\n", {}, "line 3: time is 0.5, which is not whole; number the slots, or give the length"),
    (HEAD + "1e300,a,1\n", {}, "line 2: time is 1e300, which is too large"),
    (HEAD + "5,a,1\n4,b,1\n4,a,0\n", {}, "line 4: time 4 of arm 'a' comes after its time 5, at line 2; sort the log"),
    (HEAD + "5,a,1\n5,b,1\n5,a,0\n", {}, "line 4: arm 'a' was logged in slot 5 before, at line 2; keep one"),
    (HEAD + "0,a,1\n20,a,0\n", {"slot": 60}, "keep one of the two, or make slots shorter (--slot)"),
    (HEAD + "0,a,1\n1,a,0\n", {"slot": 0}, "slot is 0; give the length"),
    (HEAD + "0,a,1\n1,a,0\n", {"slot": 1e-300}, "which makes 1e+300 slots; give a longer one"),
    (HEAD + "0,a,1\n1,a,0\n", {"states": 2}, "the trace has a state column, so there are no values to bin"),
    (HEAD + "0,a,1\n1,a,0\n", {"rewards": [1, 0.5, 0]}, "there are 3 rewards for 2 states; give one for each"),
    (HEAD + "0,a,1\n1,a,0\n", {"rewards": [1, 2]}, "rewards are [1, 2]; give a number between 0 and 1"),
    (HEAD + "0,a,1\n1,a,0\n", {"reward_range": (0, 9)}, "a reward range is for logged rewards"),
    (HEAD + '0,"a,1\n', {}, "trace.csv, line 2: unexpected end of data; check the quotation marks"),
    ("time;arm;value\n0;a;1,5\n", {}, "line 2: value is '1,5', which is not a number; write decimals with a point"),
    ("time,arm,value\n0,a,inf\n", {}, "line 2: value is inf; leave the line out"),
    ("time,arm,value\n0,a,1\n1,a,2\n", {"states": 3}, "the values take 2 different numbers, too few for 3 states"),
    ("time,arm,value\n0,a,2.5\n1,a,2.5\n", {}, "all values are 2.5, so there is one state and nothing to learn of it"),
    ("time,arm,value\n0,a,1\n1,a,2\n", {"states": 1}, "states is 1; give a whole number of at least 2"),
    ("time,arm,value\n0,a,1\n1,a,2\n", {"states": 2, "edges": [1]}, "both given; give one"),
    ("time,arm,value\n0,a,1\n1,a,2\n", {"edges": [1, 1]}, "edges are 1,1; give them ascending or descending"),
    ("time,arm,value\n0,a,1\n1,a,2\n", {"edges": []}, "edges are []; give the values between states"),
    (
        "time,arm,value\n0,a,1\n1,a,2\n",
        {"edges": [5]},
        "edges 5 leave state 0 without a value, as values lie between 1",
    ),
    (
        "time,arm,state,reward\n0,a,0,1\n1,a,1,7\n",
        {},
        "line 3: reward is 7, which is not between 0 and 1; --reward-range 1,7",
    ),
    (
        "time,arm,state,reward\n0,a,0,1.0000001\n1,a,1,0\n",
        {},
        "line 2: reward is 1.0000001, which is not between 0 and 1; --reward-range 0,1.0000001 scales",
    ),
    ("time,arm,state,reward\n0,a,0,5\n1,a,1,5\n", {}, "reward is 5, which is not between 0 and 1; --reward-range 0,5 "),
    ("time,arm,state,reward\n0,a,0,-5\n1,a,1,-5\n", {}, "--reward-range -5,0 scales all of them"),
    ("time,arm,state,reward\n0,a,0,0\n1,a,1,0\n", {"reward_range": (1, 2)}, "--reward-range 0,1 scales all of them"),
    ("time,arm,state,reward\n0,a,0,1\n1,a,1,1\n", {"reward_range": (-1e308, 1e308)}, "the reward range is (-1e+308,"),
    ("time,arm,state,reward\n0,a,0,-1\n1,a,1,1\n", {}, "line 2: reward is -1, which is not between 0 and 1"),
    ("time,arm,state,reward\n0,a,0,1\n1,a,1,1\n", {"reward_range": (3, 3)}, "the reward range is (3, 3); give"),
    ("time,arm,state\n0,é,1\n".encode("utf-16"), {}, "trace.csv is in UTF-16; save it as CSV in UTF-8"),
    ("time,arm,state\n0,é,1\n".encode("latin-1"), {}, "trace.csv, line 2: the byte 0xe9 is not UTF-8"),
]


@pytest.mark.parametrize(("text", "options", "message"), BAD_FILES, ids=[message[:50] for _, _, message in BAD_FILES])
def test_bad_files(write, text, options, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.read_trace(write(text), **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_bad_columns_in_memory(tmp_path):
    with pytest.raises(rb.ProblemError, match="columns have different lengths"):
        rb.data.trace([0, 1], ["a"], state=[0, 1])
    with pytest.raises(rb.ProblemError, match="holds no observations"):
        rb.data.trace([], [], state=[])
    with pytest.raises(rb.ProblemError, match=r"observation 1: value is nan; leave"):
        rb.data.trace([0, 1], ["a", "a"], value=[0.5, float("nan")])
    with pytest.raises(rb.ProblemError, match=r"observation 1: .* before, at observation 0"):
        rb.data.trace([3, 3], ["a", "a"], state=[0, 1])
    for missing in (None, float("nan"), " "):
        with pytest.raises(rb.ProblemError, match="observation 1: arm is missing; name it"):
            rb.data.trace([0, 1], ["a", missing], state=[0, 1])
    with pytest.raises(rb.ProblemError, match=r"cannot read .*: No such file"):
        rb.data.read_trace(tmp_path / "none.csv")


class TestFitting:
    def test_lags_are_a_list(self):
        with pytest.raises(rb.ProblemError, match=r"lags is 5; give a list of whole numbers, such as \[1, 2, 5\]"):
            rb.data.fit(rb.data.trace([0, 1, 2], ["x"] * 3, state=[0, 1, 0]), lags=5)

    def test_by_hand(self):
        # From 0: stays 3, leaves 2; from 1: back 2, stays 1. One pseudo-count for each move.
        states = [0, 0, 0, 1, 1, 0, 0, 1, 0]
        for shape in ("birth-death", "free"):
            found = rb.data.fit(rb.data.trace(range(9), ["x"] * 9, state=states), shape=shape)
            arm = found.arms[0]
            assert arm.transitions == pytest.approx(np.array([[4 / 7, 3 / 7], [3 / 5, 2 / 5]]), abs=1e-4)
            errors = [np.sqrt(4 / 7 * 3 / 7 / 7), np.sqrt(3 / 5 * 2 / 5 / 5)]
            assert arm.standard_errors[:, 0] == pytest.approx(errors, rel=1e-3)
            assert (arm.looks, arm.steps, arm.jumps, arm.unused) == (9, 8, 0, 0)
            assert arm.rewards.tolist() == [1.0, 0.0]
            assert found.problem.arms[0].transitions.tolist() == arm.transitions.tolist()
            assert found.problem.arms[0].reward_law == "fixed"

    def test_jumps_are_counted_and_left_out(self):
        # From 0: three to 1, one jump to 2. Row 0 is that of the moves to neighbours alone.
        states = [0, 1, 0, 1, 2, 1, 0, 2, 1, 0, 1, 2, 2, 1, 1, 0, 0]
        trace = rb.data.trace(range(len(states)), [0] * len(states), state=states)
        near, free = rb.data.fit(trace), rb.data.fit(trace, shape="free")
        for found in (near, free):
            assert (found.arms[0].steps, found.arms[0].jumps) == (16, 1)
            assert found.arms[0].jump_share == 1 / 16
        assert (near.arms[0].unused, free.arms[0].unused) == (1, 0)
        assert near.arms[0].transitions[0] == pytest.approx([2 / 6, 4 / 6, 0], abs=1e-4)
        assert free.arms[0].transitions[0] == pytest.approx([2 / 8, 4 / 8, 2 / 8])
        assert near.arms[0].standard_errors[0, 0] == pytest.approx(np.sqrt(2 / 9 / 6), rel=1e-3)
        assert near.problem.assumptions["birth_death"].holds
        assert not free.problem.assumptions["birth_death"].holds
        assert "1 of 16 steps (6.25%) jump over a state" in str(near)

    def test_round_trip_with_gaps(self):
        # Chains, means and laws of a known problem from looks at 40 % of the slots. A normal variable leaves five
        # standard errors with a chance below 6e-7; the p-values would be below 1e-6 once in a million times each.
        trace = logged(THREE, paths(THREE, 12_000, seed=5), seed=6, share=0.4)
        found = rb.data.fit(trace)
        for arm in found.arms:
            truth = THREE.arms[THREE.arm_number(arm.name)]
            moves = truth.transitions > 0
            gaps = np.abs(arm.transitions - truth.transitions)[moves]
            assert (gaps < BEYOND * arm.standard_errors[moves]).all()
            assert (arm.standard_errors[moves] < 0.03).all()
            assert (np.abs(arm.rewards - truth.rewards) <= BEYOND * arm.reward_errors + 1e-12).all()
            assert (arm.reward_errors < 0.02).all()
            assert arm.jumps == 0
            assert not arm.selective
            assert [law.lag for law in arm.laws][:4] == [1, 2, 5, 10]
            for law in arm.laws:
                assert law.p_value > 1e-6
                assert abs(law.same_observed - law.same_predicted) < BEYOND * law.same_error
        assert rb.Problem.from_toml(found.problem.to_toml()) == found.problem

    @pytest.mark.parametrize("wait", [60, 640, 2000])
    def test_long_waits_of_slow_chains(self, wait):
        # Quick chains are all alike after such waits, and records keep the long ones in bins: neither may show.
        chain = np.array([[1 - 0.3 / wait, 0.3 / wait], [0.5 / wait, 1 - 0.5 / wait]])
        law = np.linalg.matrix_power(chain, wait)
        rng = np.random.default_rng(wait)
        states = [0]
        for u in rng.random(4000):
            states.append(int(u >= law[states[-1], 0]))
        trace = rb.data.trace(wait * np.arange(4001), [0] * 4001, state=states)
        (arm,) = rb.data.fit(trace).arms
        # Five standard errors: false alarms below 1e-6 each.
        for s, k in ((0, 1), (1, 0)):
            assert abs(arm.transitions[s, k] - chain[s, k]) < 5 * arm.standard_errors[s, k]
            assert arm.standard_errors[s, k] < 0.1 * chain[s, k]
        assert arm.laws[0].lag == wait
        assert arm.laws[0].p_value > 1e-6

    def test_law_check_against_a_slow_count(self):
        trace = logged(THREE, paths(THREE, 1200, seed=8), seed=9, share=0.7)
        arm = rb.data.fit(trace, lags=[3]).arms[0]
        times, states, _ = trace.of_arm(0)
        at = dict(zip(times.tolist(), states.tolist(), strict=True))
        found = []
        for phase in range(3):
            counts = np.zeros((3, 3), dtype=int)
            for t in at:
                if t % 3 == phase and t + 3 in at:
                    counts[at[t], at[t + 3]] += 1
            found.append(counts)
        most = max(found, key=lambda counts: counts.sum())
        (law,) = arm.laws
        assert np.array_equal(law.counts, most)
        power = np.linalg.matrix_power(arm.transitions, 3)
        assert law.predicted == pytest.approx(power)
        assert law.same_observed == pytest.approx(np.trace(most) / most.sum())
        same = (most.sum(axis=1) @ np.diag(power)) / most.sum()
        assert law.same_predicted == pytest.approx(same)
        expected = most.sum(axis=1, keepdims=True) * power
        assert expected.min() > fitting.EXPECTED  # so that nothing is pooled
        assert law.chi_square == pytest.approx(((most - expected) ** 2 / expected).sum())
        assert law.degrees == 6

    def test_pooling(self):
        seen, expected = fitting._pooled(np.array([1, 2, 30, 4, 1]), np.array([2.0, 3.5, 20.0, 4.0, 0.5]))
        assert seen.tolist() == [3, 35]
        assert expected.tolist() == [5.5, 24.5]
        seen, expected = fitting._pooled(np.array([3, 0]), np.array([2.0, 1.0]))
        assert (seen.tolist(), expected.tolist()) == ([3], [3])

    def test_states_that_are_no_chain_are_called_so(self):
        # A clock that changes state every five slots, one look in ten at random.
        rng = np.random.default_rng(10)
        states = np.where(rng.random(1000) < 0.1, rng.integers(0, 2, 1000), np.arange(1000) // 5 % 2)
        found = rb.data.fit(rb.data.trace(range(1000), ["x"] * 1000, state=states))
        assert min(law.p_value for law in found.arms[0].laws) < 1e-6
        assert "does not fit the chain" in str(found)

    def test_logs_of_a_policy(self):
        # A policy stays while the state is good, so a look two slots later follows good looks more often than bad ones.
        walk = rb.walk(rb.Problem.builtin("paper-1"), "whittle", horizon=6000, seed=2)
        times = np.arange(6000)
        found = rb.data.fit(rb.data.trace(times, walk.arms, state=walk.states[times, walk.arms]))
        for arm, truth in zip(found.arms, walk.problem.arms, strict=True):
            assert arm.selective
            assert (np.abs(arm.transitions - truth.transitions) < BEYOND * arm.standard_errors).all()
            assert all(law.p_value > 1e-6 for law in arm.laws if law.degrees)
        assert "as when a policy chose what to log" in str(found)

    def test_refusals(self):
        rng = np.random.default_rng(3)
        far = rb.data.trace(np.arange(200) * 1000, ["x"] * 200, state=rng.integers(0, 2, 200))
        with pytest.raises(
            rb.NotIdentified, match=r"arm 'x': 199 observations tell at most its stationary law, about 0"
        ):
            rb.data.fit(far)
        loose = rb.data.fit(far, strict=False)
        assert not loose.arms[0].identified
        assert any("not told by the log" in note for note in loose.notes)
        assert "--slot 1000" in str(loose)
        with pytest.raises(rb.NotIdentified) as refused:
            rb.data.fit(rb.data.trace(range(9), ["x"] * 9, state=[0, 1, 0, 1, 0, 0, 1, 0, 2]), shape="free")
        assert "arm 'x' was never seen again after state 2" in str(refused.value)
        assert isinstance(refused.value.estimate.arms[0].modes[0], Mode)
        with pytest.raises(
            rb.NotIdentified, match="arm 'x' was never seen in state 1, but in better and in worse ones"
        ):
            rb.data.fit(rb.data.trace([0, 1, 2, 0, 1], list("xxxyy"), state=[0, 2, 0, 1, 0]))
        trace = rb.data.trace(range(4), ["x"] * 4, state=[0, 1, 0, 1])
        with pytest.raises(rb.ProblemError, match="there is no shape 'fre'; did you mean 'free'"):
            rb.data.fit(trace, shape="fre")
        with pytest.raises(rb.ProblemError, match="the lags hold 0"):
            rb.data.fit(trace, lags=[0])

    def test_two_chains_that_cannot_be_told_apart(self):
        # Even waits tell λ² only.
        states = paths(rb.Problem.builtin("paper-1"), 3000, seed=1)[::2, 0]
        found = rb.data.fit(rb.data.trace(np.arange(1500) * 2, ["x"] * 1500, state=states))
        assert len(found.arms[0].modes) > 1
        eigenvalues = [mode.transitions[0, 0] - mode.transitions[1, 0] for mode in found.arms[0].modes]
        assert min(eigenvalues) < 0 < max(eigenvalues)
        assert any("another chain is nearly as likely" in note for note in found.notes)
        assert [law.lag for law in found.arms[0].laws][:2] == [2, 4]

    def test_odd_arms(self):
        states = [0, 1, 0, 1, 1, 0, 0, 1] + [1, 2, 1, 1, 2, 2, 1, 2] + [2] * 8
        trace = rb.data.trace(list(range(8)) * 3, ["a"] * 8 + ["b"] * 8 + ["c"] * 8, state=states)
        found = rb.data.fit(trace)
        assert [arm.n_states for arm in found.problem.arms] == [2, 2, 1]
        assert [arm.rewards.tolist() for arm in found.problem.arms] == [[1.0, 0.5], [0.5, 0.0], [0.0]]
        assert "arm 'b' was seen in states 1 to 2 only" in str(found)
        assert "arm 'c' was seen 8 times, in state 2 only, and is taken for constant" in str(found)
        rising = rb.data.trace(range(8), ["a"] * 8, state=states[:8], rewards=[0.2, 0.6])
        assert "state 1 pays 0.4 more than state 0, against Assumption 1" in str(rb.data.fit(rising))

    def test_rewards_by_hand(self):
        trace = rb.data.trace(range(5), ["a"] * 5, state=[0, 0, 2, 2, 1], reward=[0.5, 0.7, 0.1, 0.1, 0.3])
        means, errors = fitting.mean_rewards(trace, 0)
        assert means == pytest.approx([0.6, 0.3, 0.1])
        assert errors[[0, 2]] == pytest.approx([0.1, 0.0])
        assert np.isnan(errors[1])
        hole = rb.data.trace([0, 1, 2, 0, 1], list("aaabb"), state=[0, 2, 0, 1, 0], reward=[1, 0.2, 1, 0, 1])
        assert fitting.mean_rewards(hole, 0)[0] == pytest.approx([1, 0.6, 0.2])


def slow_replay(trace, learner, first, slots, task, seed, run):
    """Look up every answer in the list of lines."""
    lines = {}
    for time, arm, state, reward in zip(trace.times, trace.arms, trace.states, trace.rewards, strict=True):
        lines[int(time), int(arm)] = int(state) - trace.spans[int(arm)][0], float(reward)
    agent = rb.Agent(learner, task, seed=seed, run=run, content=trace.content)
    total = 0.0
    for slot in range(first, first + slots):
        arm = agent.ask()
        state, reward = lines[slot, arm]
        agent.tell(state, reward)
        total += reward
    return total, agent.record.pulls


class TestReplay:
    def test_by_hand(self):
        a, b = [0.9, 0.1, 0.4, 0.8], [0.3, 0.6, 0.4, 0.2]
        trace = rb.data.trace([5, 6, 7, 8] * 2, ["a"] * 4 + ["b"] * 4, state=[0, 3, 2, 1, 2, 0, 1, 3], reward=a + b)
        assert trace.reward_laws == ("fixed", "fixed")
        found = rb.data.replay(trace, "round-robin")
        assert (found.first, found.slots, found.best_arm) == (5, 4, "a")
        assert found.arm_totals == pytest.approx([2.2, 1.5])
        assert found.hindsight == pytest.approx(0.9 + 0.6 + 0.4 + 0.8)
        assert found.learners[0].totals == pytest.approx([0.9 + 0.6 + 0.4 + 0.2])
        assert found.learners[0].pulls.tolist() == [[2, 2]]
        short = rb.data.replay(trace, "round-robin", horizon=2)
        assert short.hindsight == pytest.approx(1.5)
        assert short.learners[0].totals == pytest.approx([1.5])

    def test_against_a_slow_loop(self):
        problem = rb.Problem.builtin("paper-1")
        trace = logged(problem, paths(problem, 700, seed=11), seed=12)
        keep = ~((trace.times == 199) & (trace.arms == 1))
        names = [trace.names[arm] for arm in trace.arms[keep]]
        trace = rb.data.trace(trace.times[keep], names, state=trace.states[keep], reward=trace.rewards[keep])
        found = rb.data.replay(trace, ["ucb1", "ts-9", "whittle"], runs=2, seed=3)
        assert (found.first, found.slots) == (200, 500)
        assert [one.runs for one in found.learners] == [1, 2, 1]
        problem = rb.data.fit(trace).problem
        for one in found.learners:
            learner = rb.learner(one.spec)
            for run, total in enumerate(one.totals):
                slow, pulls = slow_replay(trace, learner, 200, 500, learner.task(problem, 500), seed=3, run=run)
                assert total == slow
                assert one.pulls[run].tolist() == pulls.tolist()
        again = rb.data.replay(trace, "ts-9", runs=2, seed=3).learners[0]
        assert again.totals.tolist() == found.learners[1].totals.tolist()

    def test_rewards_of_another_law_are_told_as_draws(self):
        rng = np.random.default_rng(0)
        states = paths(THREE, 300, seed=13)
        rewards = np.clip(0.8 - 0.3 * states + 0.1 * rng.random(states.shape), 0, 1)
        times, arms = np.divmod(np.arange(600), 2)
        trace = rb.data.trace(times, arms, state=states.ravel(), reward=rewards.ravel())
        found = rb.data.replay(trace, "round-robin", runs=3)
        # Round-robin does not listen, so what it earns is as logged whatever it was told.
        expected = rewards[np.arange(300), np.arange(300) % 2].sum()
        assert found.rounded
        assert found.learners[0].totals == pytest.approx([expected] * 3)
        log = rb.data.replaying._Log(trace, states, rewards, seed=0)
        for told in (log._told(0), log._told(1)):
            assert np.isin(told, (0.0, 1.0)).all()
            # A sum of draws with these chances has a standard deviation of at most √600 / 2.
            assert abs((told - rewards).sum()) < BEYOND * np.sqrt(600) / 2
        assert not np.array_equal(log._told(0), log._told(1))

    def test_stretches(self):
        times = [0, 1, 2, 3, 4, 0, 1, 3, 4, 5]
        trace = rb.data.trace(times, list("aaaaabbbbb"), state=[0, 1] * 5)
        spans = [
            ({}, (0, 2)),
            ({"first": 3}, (3, 2)),
            ({"last": 3}, (3, 1)),
            ({"first": 1, "last": 1}, (1, 1)),
        ]
        for options, expected in spans:
            found = rb.data.replay(trace, "round-robin", **options)
            assert (found.first, found.slots) == expected

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"first": 0, "last": 4}, "arm 'b' was not logged in slot 2, and the stretch that was asked for needs it"),
            ({"first": 2}, "arm 'b' was not logged in slot 2"),
            ({"last": 5}, "arm 'a' was not logged in slot 5"),
            ({"first": 5}, "no slot from 5 to 5 has all 2 arms logged"),
            ({"first": 4, "last": 3}, "the stretch from slot 4 to slot 3 is empty"),
            ({"horizon": 3}, "horizon is 3, but the complete stretch has 2 slots"),
            ({"horizon": 0}, "horizon is 0; give a whole number of at least 1"),
            ({"runs": 0}, "runs is 0; give a whole number of at least 1"),
            ({"first": "x"}, "first is 'x'; give a whole number of at least 0"),
            ({"first": 1.7, "last": 4}, "first is 1.7; give a whole number of at least 0"),
            ({"last": 10**21}, "last is beyond 2^62"),
            ({"learners": []}, "no learner is named"),
            ({"learners": [3]}, "3 is not a learner; give a spec"),
            ({"learners": 3}, "3 is not a learner; give a spec"),
            ({"learners": ["ucb1", "ucb1"]}, "learner 'ucb1' is given twice"),
            ({"learners": ["ucb"]}, "there is no learner 'ucb'; did you mean 'ucb1'"),
        ],
    )
    def test_refusals(self, options, message):
        times = [0, 1, 2, 3, 4, 0, 1, 3, 4, 5]
        trace = rb.data.trace(times, list("aaaaabbbbb"), state=[0, 1] * 5)
        with pytest.raises(rb.ProblemError) as refused:
            rb.data.replay(trace, **{"learners": ["round-robin"], **options})
        assert message in str(refused.value)

    def test_known_rewards_need_no_fit(self):
        # The log is far too short for chains.
        trace = rb.data.trace([0, 1, 0, 1], list("aabb"), state=[0, 1, 1, 0])
        found = rb.data.replay(trace, "likelihood-ucb:rewards=known")
        assert found.learners[0].totals[0] in (0.0, 1.0, 2.0)
        with pytest.raises(rb.NotIdentified, match="seen again after state"):
            rb.data.replay(trace, "whittle")


class TestCommands:
    @pytest.fixture
    def trace(self, write):
        states = paths(THREE, 400, seed=14)
        lines = [f"{60 * t},{name},{9.5 - 2 * states[t, i]}" for t in range(400) for i, name in enumerate("ab")]
        return write("\n".join(["time,arm,value", *lines]))

    def test_fit(self, restless, trace, tmp_path):
        out, plot = tmp_path / "found.toml", tmp_path / "fit.png"
        words = ["fit", trace, "--slot", 60, "--edges", "7,9", "--rewards", "1,0.4,0", "--lags", "1,3"]
        code, text, err = restless(*words, "--out", out, "--plot", plot, "--json")
        assert (code, err) == (0, "")
        found = json.loads(text)
        expected = rb.data.fit(rb.data.read_trace(trace, slot=60, edges=[7, 9], rewards=[1, 0.4, 0]), lags=[1, 3])
        fields = "trace problem shape observations first_slot last_slot states edges arms notes out plot"
        assert list(found) == fields.split()
        assert [found[key] for key in ("trace", "problem", "shape", "observations", "states", "edges")] == [
            "trace.csv", "trace", "birth-death", 800, 3, [9.0, 7.0]
        ]  # fmt: skip
        arm = found["arms"][0]
        of_arm = (
            "name states observations transitions standard_errors rewards reward_errors reward_law stationary steps "
            "jumps jump_share unused identified selective modes laws"
        )
        assert list(arm) == of_arm.split()
        assert arm["transitions"] == expected.arms[0].transitions.tolist()
        assert (arm["rewards"], arm["reward_law"], arm["steps"]) == ([1.0, 0.4, 0.0], "fixed", 399)
        assert list(arm["modes"][0]) == ["transitions", "standard_errors", "log_posterior"]
        of_law = "tau pairs observed predicted same_observed same_predicted same_error chi_square degrees p_value"
        assert [list(law) for law in arm["laws"]] == [of_law.split()] * 2
        assert [law["tau"] for law in arm["laws"]] == [1, 3]
        assert rb.load_problem(out) == expected.problem
        assert plot.read_bytes()[:4] == b"\x89PNG"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["fit.png", "found.toml", "trace.csv"]

        code, text, err = restless(*words, "--shape", "free")
        assert (code, err) == (0, "")
        assert "400 observations" in text

    def test_replay(self, restless, trace):
        words = ["replay", trace, "--slot", 60, "--states", 3, "--from", 10, "--to", 209, "--horizon", 150]
        learners = ["--learner", "round-robin", "--learner", "myopic"]
        code, text, err = restless(*words, *learners, "--json")
        assert (code, err) == (0, "")
        found = json.loads(text)
        fields = "trace first_slot last_slot slots seed rounded arms best_arm hindsight learners"
        assert list(found) == fields.split()
        assert [found[key] for key in ("first_slot", "last_slot", "slots")] == [10, 159, 150]
        one = found["learners"][0]
        of_learner = (
            "spec runs reward_total_mean reward_total_stderr reward_totals reward_mean above_best_arm "
            "share_of_hindsight pulls_mean"
        )
        assert list(one) == of_learner.split()
        assert (one["spec"], one["runs"], one["pulls_mean"]) == ("round-robin", 1, [75.0, 75.0])
        rewards = 1 - paths(THREE, 400, seed=14)[10:160] / 2
        assert found["hindsight"]["reward_total"] == rewards.max(axis=1).sum()
        assert found["best_arm"]["reward_total"] == rewards.sum(axis=0).max()
        assert [arm["reward_total"] for arm in found["arms"]] == rewards.sum(axis=0).tolist()
        assert one["above_best_arm"] == one["reward_total_mean"] - rewards.sum(axis=0).max()
        code, text, _ = restless(*words, *learners)
        assert code == 0
        assert "best fixed arm" in text

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--edges", "7,x"], "--edges is '7,x'; give numbers separated by commas"),
            (["--reward-range", "1"], "--reward-range is '1'; give the lowest and the highest reward"),
            (["--lags", str(10**21)], "the lags hold a number beyond 2^62"),
            (["--lags", "1,two"], "--lags holds 'two'; give whole numbers"),
            (["--plot", "fit.gif"], "cannot draw fit.gif; give a name that ends in .png, .svg, .pdf"),
            (["--out", "nowhere/found.toml"], "there is no folder nowhere; make it first"),
            (["--shape", "line"], "there is no shape 'line'"),
        ],
    )
    def test_bad_words(self, restless, trace, words, message):
        code, text, err = restless("fit", trace, *words)
        assert (code, text) == (2, "")
        assert message in err
        assert err.count("\n") == 1

    def test_outputs_do_not_replace_the_log_or_each_other(self, restless, trace, tmp_path):
        before = trace.read_bytes()
        link = tmp_path / "link.png"
        link.symlink_to(trace)
        same = tmp_path / "same.png"
        for words, message in (
            (["--out", trace], "--out is {}, which is the trace itself; name another file"),
            (["--plot", link], "--plot is {}, which is the trace itself; name another file"),
            (["--plot", same, "--out", same], "--out and --plot are both {}; name two files"),
        ):
            code, text, err = restless("fit", trace, *words)
            assert (code, text) == (2, "")
            assert message.format(words[1]) in err
        assert trace.read_bytes() == before
        assert not same.exists()

    def test_refusals_write_nothing(self, restless, write, tmp_path):
        path = write("time,arm,state\n0,a,0\n1,a,1\n")
        code, text, err = restless("fit", path, "--out", tmp_path / "found.toml")
        assert (code, text) == (2, "")
        assert err == (
            "Error: arm 'a' was never seen again after state 1, so the moves from there are not known; log more, or "
            "use fewer states\n"
        )
        assert [path.name for path in tmp_path.iterdir()] == ["trace.csv"]


def test_picture_of_laws():
    figure = pytest.importorskip("matplotlib.figure")
    arm = rb.data.fit(logged(THREE, paths(THREE, 600, seed=15), seed=16), lags=[1, 4]).arms[0]
    ax = rb.plots.laws(arm, ax=figure.Figure().subplots())
    curves = [line for line in ax.lines if line.get_marker() == "None" and len(line.get_xdata()) > 2]
    assert len(curves) == 3
    for state, (curve, marks) in enumerate(zip(curves, ax.containers, strict=True)):
        power = np.linalg.matrix_power(arm.transitions, 4)
        drawn = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
        assert drawn[4] == pytest.approx(power[state, state])
        assert marks[0].get_ydata() == pytest.approx([law.observed[state, state] for law in arm.laws])
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["state 0", "state 1", "state 2"]
