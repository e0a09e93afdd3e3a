"""Listeners: callbacks after every change of an agent."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from restless_bandits.service.storage.store import Store, StoreError

Callback = Callable[[int], None]


class Listeners:
    """The callbacks of every agent, with the number of the last event that they received."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callback]] = {}
        self._heard: dict[str, int] = {}

    def add(self, name: str, callback: Callback) -> Callable[[], None]:
        """Call back with the last event number after each commit to an agent; return a function that ends the calls."""
        with self._lock:
            self._callbacks.setdefault(name, []).append(callback)

        def stop() -> None:
            with self._lock, contextlib.suppress(ValueError, KeyError):
                self._callbacks[name].remove(callback)
                if not self._callbacks[name]:
                    del self._callbacks[name]
                    self._heard.pop(name, None)

        return stop

    def tell(self, name: str, seq: int) -> None:
        """Notify the listeners of an agent that its log has grown."""
        with self._lock:
            callbacks = list(self._callbacks.get(name, ()))
            if callbacks:
                self._heard[name] = seq
        for callback in callbacks:
            with contextlib.suppress(Exception):
                callback(seq)

    def glance(self) -> None:
        """Notify listeners of changes that other processes made to the same store."""
        with self._lock:
            heard = {name: self._heard.get(name, 0) for name in self._callbacks}
        if not heard:
            return
        with contextlib.suppress(StoreError), self._store.reading() as session:
            for name, row in session.rows_of(heard, for_us=False).items():
                if row.seq > heard[name]:
                    self.tell(name, row.seq)
