"""A keeper for tests, without a network: its clock stands still until it is moved, and plans are made at once."""

import itertools
from concurrent.futures import Future

from restless_bandits._internal import background
from restless_bandits.service.operations import Ask, Create, Delete, Patch, Skip, Tell
from restless_bandits.service.storage.store import open_store
from restless_bandits.service.writer import CommandProcessor

SECOND = 1_000_000
GUARD = 90.0
"""Seconds after which a test gives up. They guard against hanging, so they are far above what a slow machine takes."""


def plan_at_once(work, *given):
    """What ``background.submit`` does, in this process and at once."""
    promise = Future()
    try:
        promise.set_result(background.with_warnings(work, *given))
    except Exception as error:
        promise.set_exception(error)
    return promise


class Kept:
    """One agent of a store, and the keeper that keeps it."""

    def __init__(self, where, name="a", **options):
        self.where, self.name, self.options = where, name, options
        self.time = 1_700_000_000 * SECOND
        self.numbers = itertools.count(1)
        self.open()

    def open(self):
        self.store = open_store(self.where)
        self.writer = CommandProcessor(self.store, now=lambda: self.time, **self.options)
        self.writer.start()

    def close(self):
        self.writer.stop()
        self.store.close()

    def reopen(self):
        """Forget all that is in memory."""
        self.close()
        self.open()

    def do(self, *operations):
        return self.writer.submit(self.name, operations).result(GUARD)

    def create(self, arms=("x", "y"), learner="ucb1", seed=5, **given):
        return self.do(Create(self.name, list(arms), learner=learner, seed=seed, **given))[0]

    def ask(self, request=None):
        return self.do(Ask(request or f"own {next(self.numbers)}"))[0]

    def tell(self, decision=None, **given):
        decision = decision["decision"] if isinstance(decision, dict) else decision
        return self.do(Tell(decision, **given))[0]

    def skip(self, slots=1, request=None):
        return self.do(Skip(slots, request))[0]

    def patch(self, **changes):
        return self.do(Patch(changes))[0]

    def delete(self):
        return self.do(Delete())[0]

    def read(self):
        return self.writer.agent(self.name)

    def log(self):
        """All events, without the times."""
        events, after = [], 0
        while page := self.writer.events(self.name, after)["events"]:
            events += page
            after = page[-1]["seq"]
        return [{key: value for key, value in event.items() if key != "at"} for event in events]

    def kinds(self):
        return [event["kind"] for event in self.log() if event["kind"] not in ("create", "plan")]

    def record(self):
        """What was seen, as data."""
        return self.writer.read(self.name, lambda agent_state: agent_state.core.record.to_dict())
