"""Any order, duplication and delay of answers within the window leaves the record that the right order would have."""

import itertools

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from restless_bandits.service.audit import audit
from restless_bandits.service.operations import Ask, Tell
from tests.service.one_agent import Kept

SEEN = st.tuples(st.integers(0, 1), st.sampled_from([0.0, 0.1, 0.25, 0.7, 1.0]))
SLOTS = 14
LATE = 8


@st.composite
def deliveries(draw):
    """What each slot gave, or that nothing came of it, and when each answer arrives: after which ask, how often."""
    answers = draw(st.lists(st.one_of(st.none(), SEEN), min_size=SLOTS, max_size=SLOTS))
    arrivals = []
    for slot, answer in enumerate(answers, start=1):
        if answer is not None:
            # The window reaches back from the slots that have passed, and the present one passes when it is told.
            last = min(SLOTS, slot + LATE - 1)
            times = draw(st.lists(st.integers(slot, last), min_size=1, max_size=3))
            arrivals += [(when, draw(st.integers(0, 99)), slot) for when in times]
    return answers, [(when, slot) for when, _, slot in sorted(arrivals)]


numbers = itertools.count()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(deliveries(), st.sampled_from([1, 7, 100]), st.booleans())
def test_any_order_gives_the_same_record(quick, at_once, delivered, snapshot_every, reacts):
    answers, arrivals = delivered
    number = next(numbers)
    options = {"learner": "round-robin", "reward_law": "bounded", "late": LATE, "reacts": reacts}
    a = Kept(quick / f"order-{number}.db", snapshot_every=snapshot_every)
    a.create(**options)
    pulled = {}
    for present in range(1, SLOTS + 1):
        decision = a.ask(f"r{present}")
        assert decision["slot"] == present
        pulled[present] = decision["numbers"][0]
        due = [slot for when, slot in arrivals if when == present]
        tells = [Tell(f"1-{slot}", state=answers[slot - 1][0], reward=answers[slot - 1][1]) for slot in due]
        if tells:
            assert all(answer["used"] for answer in a.do(*tells))
        if present == SLOTS // 2:
            a.reopen()
    right = Kept(quick / f"order-{number}-right.db")
    right.create(**options)
    for slot, answer in enumerate(answers, start=1):
        seen = {"lost": True} if answer is None else {"state": answer[0], "reward": answer[1], "arm": pulled[slot]}
        right.do(Ask(f"r{slot}"), Tell(f"1-{slot}", **({"lost": True} if answer is None else seen)))
    for one in (a, right):
        one.skip(SLOTS + 1 - one.read()["slots"])
    records = [one.record() for one in (a, right)]
    for record in records:
        # Which plan was followed when is no part of what was seen.
        del record["plan_lengths"], record["notes"]
    assert records[0] == records[1]
    assert audit(a.store).same
    a.close()
    right.close()
