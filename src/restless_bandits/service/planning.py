"""Plans of the agents of the service, computed by worker processes while the writer continues with other agents.

A request without its plan raises ``PlanNeededError`` and is repeated after the plan is ready. The key of a plan is a
digest of all inputs of the computation, so that the repeated request finds the plan.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, CancelledError, Future
from functools import cache
from importlib import metadata
from typing import Any, TypeVar

import numpy as np

from restless_bandits._internal import background
from restless_bandits._internal.compiling import is_kept, processor_name
from restless_bandits.agent.core import AgentCore
from restless_bandits.learning.change_detection import CHANGE_GRID
from restless_bandits.learning.change_detection.change_kernels import score_gains, split_ratios
from restless_bandits.learning.learners import Learner
from restless_bandits.model.observed_record import ObservedRecord
from restless_bandits.model.observed_task import ObservedTask
from restless_bandits.model.record import Record
from restless_bandits.model.tasks import Task, task_fields
from restless_bandits.service.storage.stored_plans import StoredPlan, make_packed_plan, unpacked

T = TypeVar("T")

Ingredients = tuple[Learner, Record | ObservedRecord, Task | ObservedTask, Any, int, str, int]
Promise = Future[tuple[tuple[str, bytes], background.Warned]]
MOST_PLANS_IN_MEMORY = 256
"""Number of plans in memory, separately for computed plans and for plans read from the store."""
PLAN_ATTEMPTS = 3


class WaitError(Exception):
    """Signal to defer a request until a future is complete."""

    def __init__(self, promise: Future[Any], what: str) -> None:
        super().__init__(what)
        self.promise = promise


class PlanNeededError(WaitError):
    """Signal to defer a request until its plan is computed."""

    def __init__(self, promise: Promise) -> None:
        super().__init__(promise, "a plan is being made")


@cache
def origin() -> dict[str, str]:
    """Return the release and processor of this process; the same release and kind of processor give equal plans."""
    numpy = metadata.version("numpy")
    made_on = f"{platform.machine()} {processor_name()}".strip()
    return {"release": metadata.version("restless-bandits"), "processor": f"{made_on}, numpy {numpy}"}


class Planner:
    """Submission of plans to worker processes, with a cache of computed and stored plans."""

    def __init__(
        self, read: Callable[[str], bytes | None], *, patient: bool = False, trust_modules: bool = False
    ) -> None:
        self._read = read
        self.trust_modules = trust_modules
        """Whether learners of the store may be named by ``module:Class``, with an import of the module."""
        self.patient = patient
        """Whether decisions wait for due plans: slower, but a run is exactly reproducible."""
        self._stopped, self._submitting = False, threading.Lock()
        self.made = 0
        self.failed = 0
        self._coming: dict[str, Promise] = {}
        self._used: OrderedDict[str, StoredPlan] = OrderedDict()
        self._tries: dict[str, int] = {}
        self._known: OrderedDict[str, StoredPlan] = OrderedDict()
        self.kernels: Future[None] = Future()
        """Completed by ``warm_up``: requests then compile nothing in this process."""
        self.took: OrderedDict[str, float] = OrderedDict()
        """Seconds between submission and completion of recent plans of this process, by digest."""

    def stored(self, digest: str) -> StoredPlan:
        """Return a plan from the store."""
        found = self._known.get(digest)
        if found is None:
            content = self._read(digest)
            if content is None:
                raise KeyError(f"plan {digest} is not in the store")
            found = unpacked(digest, content)
            self.keep(found)
        self._known.move_to_end(digest)
        return found

    def keep(self, plan: StoredPlan) -> None:
        """Add a plan to the cache."""
        self._known[plan.digest] = plan
        if len(self._known) > MOST_PLANS_IN_MEMORY:
            self._known.popitem(last=False)

    def now(self, given: Ingredients) -> StoredPlan:
        """Return the plan of an earlier submission; otherwise submit the plan and raise ``PlanNeededError``."""
        key = _key(given)
        if key in self._used:
            return self._used[key]
        promise = self._coming.get(key)
        if promise is not None and promise.done():
            del self._coming[key]
            try:
                plan = self._used[key] = self.result(promise)
            except (BrokenExecutor, CancelledError):
                # The worker died, perhaps of a lack of memory; another worker may succeed.
                self._tries[key] = self._tries.get(key, 0) + 1
                promise = None
                if self._tries[key] >= PLAN_ATTEMPTS:
                    del self._tries[key]
                    raise
            else:
                self._tries.pop(key, None)
                if len(self._used) > MOST_PLANS_IN_MEMORY:
                    self._used.popitem(last=False)
                return plan
        if promise is None:
            # Kept until the deferred request is repeated; a deferred request is always repeated.
            promise = self._coming[key] = self.later(given)
        raise PlanNeededError(promise)

    def later(self, given: Ingredients) -> Promise:
        """Submit a plan to a worker and return its future; no request waits for the plan."""
        asked = time.perf_counter()
        promise = self._submit(make_packed_plan, *given)
        promise.add_done_callback(lambda done: self._note_time(done, time.perf_counter() - asked))
        return promise

    def _submit(self, work: Callable[..., T], *given: Any) -> Future[tuple[T, background.Warned]]:
        """Return a future for a function in a worker; after the stop, the future is cancelled."""
        # The exit of the service would wait for a worker that starts after the end of the workers.
        with self._submitting:
            if not self._stopped:
                return background.submit(work, *given)
        cancelled: Future[tuple[T, background.Warned]] = Future()
        cancelled.cancel()
        return cancelled

    def stop(self) -> None:
        """Submit nothing from now on."""
        with self._submitting:
            self._stopped = True

    def warm_up(self) -> None:
        """Load the kernels into this process; a worker compiles missing kernels and keeps the result on disk."""
        try:
            if not all(is_kept(kernel) for kernel in (split_ratios, score_gains)):
                with contextlib.suppress(Exception):  # After a failure in the worker, this process compiles below.
                    self._submit(warm_up).result()
            if not self._stopped:
                warm_up()
        finally:
            self.kernels.set_result(None)

    def _note_time(self, promise: Promise, seconds: float) -> None:
        if promise.cancelled() or promise.exception() is not None:
            return
        (digest, _), _ = promise.result()
        self.took[digest] = seconds
        if len(self.took) > MOST_PLANS_IN_MEMORY:
            self.took.popitem(last=False)

    def result(self, promise: Promise) -> StoredPlan:
        """Return the plan of a completed future, or raise the exception of the worker."""
        (digest, content), _ = promise.result()
        plan = self._known.get(digest) or unpacked(digest, content)
        self.keep(plan)
        self.made += 1
        return plan


def _key(given: Ingredients) -> str:
    learner, record, task, arms, *coordinates = given
    if isinstance(record, ObservedRecord) and isinstance(task, ObservedTask):
        digest = hashlib.sha256(
            json.dumps([learner.spec, coordinates, dict(record.notes), record.plan_lengths]).encode()
        )
        columns = [*record.to_arrays().values(), *task.to_arrays().values(), () if arms is None else arms]
        for column in columns:
            digest.update(np.ascontiguousarray(column).tobytes())
        return digest.hexdigest()
    assert isinstance(record, Record)
    assert isinstance(task, Task)
    parts = [learner.spec, record.to_dict(), task_fields(task), arms, coordinates]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


@cache
def warm_up() -> None:
    """Load the compiled kernels of requests before the first request."""
    core = AgentCore("round-robin", Task((2, 2), 1, ("bernoulli",) * 2, (None, None), ("x", "y")))
    for slot in range(3 * CHANGE_GRID):
        core.ask()
        core.tell(slot // 4 % 2, 1.0)
