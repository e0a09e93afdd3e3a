"""From columns to a trace: slots, states, rewards; what is refused and in which words."""

from datetime import datetime

import numpy as np
import pytest

import restless_bandits as rb
from restless_bandits.model.record import Record
from tests.logs.logs import THREE, logged, paths
from tests.optional import needed


def test_values_on_an_edge_are_better():
    high = rb.data.trace(range(5), [0] * 5, value=[1, 2, 3, 4, 5], edges=[4, 2])
    assert high.states.tolist() == [2, 1, 1, 0, 0]
    low = rb.data.trace(range(5), [0] * 5, value=[1, 2, 3, 4, 5], edges=[2, 4], low_is_better=True)
    assert low.states.tolist() == [0, 0, 1, 1, 2]
    assert (high.edges, low.edges) == ((4.0, 2.0), (2.0, 4.0))


def test_quantiles():
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


def test_slots_of_a_given_length():
    trace = rb.data.trace([30.5, 90.1, 149.9, 331.0], ["a"] * 4, state=[0, 1, 0, 1], slot=60)
    assert trace.times.tolist() == [0, 1, 2, 5]
    nanoseconds = rb.data.trace([1700000000000000000, 1700000000000000001], [0, 0], state=[0, 1])
    assert np.diff(nanoseconds.times).tolist() == [1]


def test_rewards():
    columns = dict(time=[0, 1, 2, 3], arm=[0] * 4, state=[0, 1, 2, 1])
    assert rb.data.trace(**columns).levels == (1.0, 0.5, 0.0)
    assert rb.data.trace(**columns, rewards=[1, 0.4, 0]).rewards.tolist() == [1.0, 0.4, 0.0, 0.4]
    logged_in_tens = rb.data.trace(**columns, reward=[5, 10, 0, 0], reward_range=(0, 10))
    assert (logged_in_tens.rewards.tolist(), logged_in_tens.levels) == ([5, 10, 0, 0], None)
    assert logged_in_tens.reward_range == (0, 10)
    over = rb.data.trace(**columns, reward=[5, 10, 0, 0], rewards=[1, 0.4, 0])
    assert over.rewards.tolist() == [1.0, 0.4, 0.0, 0.4]
    laws = [
        rb.data.trace(**columns, reward=reward).reward_laws[0]
        for reward in ([1, 1, 0, 1], [0.5, 0.2, 0, 0.2], [0.5, 0.2, 0, 0.3])
    ]
    assert laws == ["bernoulli", "fixed", "bounded"]


def test_record_is_that_of_observe_and_skip():
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
    assert np.array_equal(later.record().flat_seen, slow.flat_seen)
    assert np.array_equal(later.record([1]).counts(0), slow.counts(1))


def test_an_arm_has_the_states_seen_of_it():
    trace = rb.data.trace([0, 1, 2, 0, 1, 2], list("aaabbb"), state=[0, 1, 2, 1, 2, 1])
    assert trace.spans == ((0, 2), (1, 2))
    assert trace.of_arm(1)[1].tolist() == [0, 1, 0]
    assert trace.of_arm(1)[2].tolist() == [0.5, 0.0, 0.5]


HEAD = "time,arm,state\n"
BAD_LOGS = [
    (HEAD + "0,a,-1\n", {}, "line 2: state is -1, which is negative; states count from 0, the best"),
    (HEAD + "0,a,1\n1,a,2\n", {}, "no line has state 0, but there is a state 1; number the states"),
    (HEAD + "0,a,0\n1,a,2\n", {}, "no line has state 1, but there is a state 2; number the states"),
    (HEAD + "0,a,0\n1,a,0\n", {}, "only one state was ever seen"),
    (HEAD + "".join(f"{k},a,{k}\n" for k in range(51)), {}, "there are 51 states, more than 50"),
    (HEAD + "-3,a,1\n", {}, "line 2: time is -3, which is negative"),
    (HEAD + "0.5,a,0\n0.5,b,1\n", {}, "no arm has lines at two times, so the length of a slot is unknown; give it"),
    (HEAD + "5,a,1\n5,b,1\n5,a,0\n", {}, "line 4: arm 'a' was logged in slot 5 before, at line 2; keep one"),
    (HEAD + "0,a,1\n20,a,0\n", {"slot": 60}, "keep one of the two, make slots shorter (--slot), or say"),
    (HEAD + "0,a,1\n1,a,0\n", {"slot": 0}, "slot is 0; it must be a positive number"),
    (HEAD + "0,a,1\n1,a,0\n", {"slot": 1e-300}, "slot is 1e-300, which makes 1e+300 slots; give a longer one"),
    (HEAD + "0,a,1\n1,a,0\n", {"states": 2}, "the trace has a state column, so there are no values to bin"),
    (HEAD + "0,a,1\n1,a,0\n", {"rewards": [1, 0.5, 0]}, "there are 3 rewards for 2 states; give one for each"),
    (HEAD + "0,a,1\n1,a,0\n", {"rewards": [1, 2]}, "rewards are [1, 2]; give a number between 0 and 1"),
    (HEAD + "0,a,1\n1,a,0\n", {"reward_range": (0, 9)}, "a reward range is for logged rewards"),
    ("time,arm,value\n0,a,1\n1,a,2\n", {"states": 3}, "the values take 2 different numbers, too few for 3 states"),
    ("time,arm,value\n0,a,2.5\n1,a,2.5\n", {}, "all values are 2.5, so there is one state and nothing to learn of it"),
    ("time,arm,value\n0,a,1\n1,a,2\n", {"states": 1}, "states is 1; it must be a whole number from 2 to 50"),
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
        "line 2: reward is 1.0000001, which is not between 0 and 1; --reward-range 0,1.0000001 takes",
    ),
    ("time,arm,state,reward\n0,a,0,5\n1,a,1,5\n", {}, "reward is 5, which is not between 0 and 1; --reward-range 0,5 "),
    ("time,arm,state,reward\n0,a,0,-5\n1,a,1,-5\n", {}, "--reward-range -5,0 takes all of them"),
    ("time,arm,state,reward\n0,a,0,0\n1,a,1,0\n", {"reward_range": (1, 2)}, "--reward-range 0,1 takes all of them"),
    ("time,arm,state,reward\n0,a,0,1\n1,a,1,1\n", {"reward_range": (-1e308, 1e308)}, "the reward range is (-1e+308,"),
    ("time,arm,state,reward\n0,a,0,-1\n1,a,1,1\n", {}, "line 2: reward is -1, which is not between 0 and 1"),
    ("time,arm,state,reward\n0,a,0,1\n1,a,1,1\n", {"reward_range": (3, 3)}, "the reward range is (3, 3); give"),
]


@pytest.mark.parametrize(("text", "options", "message"), BAD_LOGS, ids=[message[:50] for _, _, message in BAD_LOGS])
def test_bad_logs(write, text, options, message):
    with pytest.raises(rb.ProblemError) as refused:
        rb.data.read_trace(write(text), **options)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_shades():
    trace = rb.data.trace([0, 1, 3, 4, 5, 0, 5], list("aaaaabb"), state=[0, 2, 1, 2, 2, 0, 1])
    assert trace.shades(3) == pytest.approx(np.array([[0.5, 0.5, 1.0], [0.0, np.nan, 0.5]]), nan_ok=True)
    assert trace.shades(100).shape == (2, 6)


def test_picture_of_a_log():
    figure = needed("matplotlib.figure")
    trace = rb.data.trace([10, 11, 13, 10, 12], list("aaabb"), state=[0, 1, 1, 0, 1])
    ax = rb.plots.log(trace, ax=figure.Figure().subplots())
    (image,) = ax.images
    assert image.get_array().filled(np.nan) == pytest.approx(trace.shades(4), nan_ok=True)
    assert image.get_extent() == [9.5, 13.5, 1.5, -0.5]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]


def test_identical_lines_are_left_out_and_noted(write):
    trace = rb.data.read_trace(write("time,arm,value\n0,a,1\n0,a,1\n1,a,2\n1,b,1\n1,a,2\n"))
    assert len(trace) == 3
    assert trace.times.tolist() == [0, 1, 1]
    (note,) = [note for note in trace.notes if "repetition" in note]
    assert note.startswith("left out: 2 lines, each a repetition of another line, the first at")
    assert note.endswith("line 3")
    with pytest.raises(rb.ProblemError, match="line 4: arm 'a' was logged in slot 0 before"):
        rb.data.read_trace(write("time,arm,value\n0,a,1\n0,a,1\n0,a,2\n"))
    # Repeated values count in a mean.
    bins = rb.data.trace([0, 0, 0, 1], list("aaaa"), value=[4, 4, 1, 0], duplicates="mean", edges=[2.9])
    assert bins.states.tolist() == [0, 1]


class TestSlices:
    STAMPS = np.arange(np.datetime64("2024-05-01T09:00"), np.datetime64("2024-05-01T15:00"), np.timedelta64(1, "h"))

    def stamped(self, **more):
        return rb.data.trace(self.STAMPS, list("aababa"), state=[0, 1, 1, 2, 0, 0], **more)

    @pytest.mark.parametrize(
        "noon", ["12:00", "2024-05-01T12:00", "2024-05-01 11:30", datetime(2024, 5, 1, 12), 3, "3"]
    )
    def test_by_time(self, noon):
        whole = self.stamped(rewards=(1, 0.5, 0))
        late, early = whole[noon:], whole[:noon]
        assert late.times.tolist() == [3, 4, 5]
        assert (late.names, late.arms.tolist(), late.states.tolist()) == (("a", "b"), [0, 1, 0], [2, 0, 0])
        assert early.times.tolist() == [0, 1, 2]
        assert (early.n_states, early.levels) == (2, (1.0, 0.5))
        assert late.clock == whole.clock
        assert late.notes[-1] == f"3 of 6 lines taken: from {noon}"
        assert len(whole[:]) == 6
        assert whole.between(last=noon).times.tolist() == [0, 1, 2] + [3] * (noon != "2024-05-01 11:30")
        assert whole.slots_between(noon) == (3, 5)

    def test_arms_without_a_line_are_left_out(self):
        trace = rb.data.trace([0, 1, 2, 3], list("abcb"), state=[0, 1, 0, 0], action=[1, 0, 1, 0], kind=list("xyzy"))
        part = trace[1:]
        assert part.names == ("b", "c")
        assert part.kinds[1] == ("y", "z")
        assert part.kinds[0].tolist() == [0, 1]
        assert part.actions.tolist() == [0, 1, 0]

    def test_offsets(self):
        zoned = rb.data.trace([f"2024-05-01T{h:02}:00+02:00" for h in range(9, 15)], [0] * 6, state=[0, 1] * 3)
        assert zoned["2024-05-01T12:00":].times.tolist() == [3, 4, 5]
        assert zoned["2024-05-01T12:00+02:00":].times.tolist() == [3, 4, 5]
        assert zoned["2024-05-01T08:00Z":"2024-05-01T10:00Z"].times.tolist() == [1, 2]

    @pytest.mark.parametrize(
        ("times", "message"),
        [
            (slice("noon", None), "'noon' is no time; give one such as 2024-05-01T12:00"),
            (slice("23:00", None), "no line from 23:00; it has slots from 2024-05-01 09:00 to 2024-05-01 14:00"),
            (slice("2024-05-01T12:00Z", None), "the times of the log have none; leave the offset out"),
            (slice(4, None), "only one state was seen from 4"),
            (slice(0, 9, 2), "is no slice"),
            (slice(1.5, None), "a slot is 1.5"),
            (3, "3 is no slice"),
        ],
    )
    def test_bad_parts(self, times, message):
        with pytest.raises(rb.ProblemError, match=message):
            self.stamped()[times]

    def test_several_days_and_no_clock(self):
        days = rb.data.trace(self.STAMPS[:4] + np.arange(4) * np.timedelta64(24, "h"), [0] * 4, state=[0, 1] * 2)
        with pytest.raises(rb.ProblemError, match=r"12:00 is on several days of the log; .* 2024-05-01T12:00"):
            days["12:00":]
        with pytest.raises(rb.ProblemError, match=r"12:00 is a clock time, .* give a slot, such as 0"):
            rb.data.trace([0, 1], [0, 0], state=[0, 1])["12:00":]
