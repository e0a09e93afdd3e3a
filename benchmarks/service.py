"""What the decision service bears: ``python -m benchmarks.service``.

Words pick the parts that hold one of them: load, batches, replay, agents. A server and its clients, which are one other
process, share this machine; the store is SQLite with full sync. Next to every load, before and after, a bare program
commits one row at a time to a SQLite file of the same folder, and rates are also given as ratios to that.

A request is one ask or one tell. *Load*: many clients, one agent, no batches; plans are made meanwhile. *Batches*: 100
tells in a request, of what somebody else chose, an agent for each client; and 100 answers with 100 new questions, which
are told late therefore. *Replay*: a log of a million events is played again from the first one, following the plans
that it holds; and a server is started on it, until it has answered an ask. *Agents*: the memory of a server and its
workers that hold many agents at a time, each of which has decided.

Results are kept in docs/benchmarks/service.json, and docs/benchmarks.md is written from them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import restless_bandits as rb
from benchmarks import pages

KEPT = "service"
CLIENTS = (1, 8, 64)
ARMS = (2, 100, 1000)
BATCH = 100
EVENTS = 1_000_000
AGENTS = 1_000
LONGEST = 150.0
"""Seconds after which a log is long enough; what it takes to replay a million events is found from that."""
SECONDS = 4.0
BARE_SECONDS = 1.0

Found = dict[str, Any]


class Server:
    """A service in a process of its own, on a store."""

    def __init__(self, store: Path, token: str | None = None) -> None:
        begun = time.perf_counter()
        command = [sys.executable, "-m", "restless_bandits", "serve", "--json", "--port", "0", "--store", str(store)]
        # As users have it: compiled modules are kept, and a second start finds them.
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert self.process.stdout is not None
        said = json.loads(self.process.stdout.readline())
        self.seconds = time.perf_counter() - begun
        self.url, self.port = said["url"], int(said["url"].rpartition(":")[2])
        self.token: str = said["token"] or token or ""
        self.client = rb.Client(self.url, self.token, timeout=120, patience=300)

    def load(self, agents: str, clients: int, seconds: float, batch: int = 0, slots: str = "") -> Found:
        """Let clients ask and tell, and return what they found."""
        command = [sys.executable, "-m", "benchmarks.service_load", "--port", str(self.port), "--agents", agents]
        command += ["--clients", str(clients), "--seconds", str(seconds), "--batch", str(batch), "--slots", slots]
        command += ["--first", str(time.time_ns() % 10**12)]
        before = self.processor()
        done = subprocess.run(command, input=self.token + "\n", capture_output=True, text=True, check=True)
        found: Found = json.loads(done.stdout)
        found["microseconds"] = round(1e6 * (self.processor() - before) / max(1, found["answered"]))
        if found["refused"]:
            raise SystemExit(f"the service refused: {found['refused'][0]}")
        return found

    def counter(self, name: str) -> float:
        text = self.client.connection.http.get("/metrics").text
        return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).split()[1])

    def processor(self) -> float:
        """Seconds of the processor that the server has taken, without its workers."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Gigabytes of the server and the workers that it has started."""
        pids = [self.process.pid, *_children(self.process.pid)]
        return sum(_resident(pid) for pid in pids) / 2**30

    def stop(self) -> None:
        self.client.close()
        self.process.terminate()
        self.process.communicate(timeout=30)


@contextlib.contextmanager
def serving(store: Path, token: str | None = None) -> Iterator[Server]:
    server = Server(store, token)
    try:
        yield server
    finally:
        server.stop()


def _children(pid: int) -> list[int]:
    """The processes that a process has started, and theirs."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                found += [int(folder.name), *_children(int(folder.name))]
    return found


def _resident(pid: int) -> int:
    """Bytes of a process, of which what several share is shared out among them."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def bare(folder: Path) -> Found:
    """Commits a second of one row at a time, and how long they take."""
    path = folder / f"bare-{time.time_ns()}.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        database.execute("CREATE TABLE events (seq INTEGER PRIMARY KEY, body TEXT)")
        spent: list[float] = []
        begun = time.perf_counter()
        while (start := time.perf_counter()) < begun + BARE_SECONDS:
            database.execute("INSERT INTO events (body) VALUES (?)", ("x" * 200,))
            spent.append(time.perf_counter() - start)
        seconds = time.perf_counter() - begun
    for leftover in folder.glob(path.name + "*"):
        leftover.unlink()
    return {"rate": len(spent) / seconds, "p50": 1e3 * sorted(spent)[len(spent) // 2]}


def beside_bare(folder: Path, work: Callable[[], Found]) -> Found:
    """Measure something, and bare commits before and after it."""
    before = bare(folder)
    found = work()
    after = bare(folder)
    rate = (before["rate"] + after["rate"]) / 2
    return found | {"bare": round(rate, 1), "ratio": round(found["rate"] / rate, 3)}


def measure_load(folder: Path, keep: Callable[[str, Found], None]) -> None:
    with serving(folder / "load.db") as server:
        for arms in ARMS:
            name = f"arms-{arms}"
            agent = server.client.create(name, [f"arm {i}" for i in range(arms)], seed=1)
            for _ in range(20):  # the first plans, and what is compiled
                decision = agent.decide()
                agent.tell(decision=decision, state=0, reward=1.0)
            for clients in CLIENTS:
                plans = server.counter("restless_keeper_plans_made_total")

                def load(name: str = name, clients: int = clients) -> Found:
                    return server.load(name, clients, SECONDS)

                found = beside_bare(folder, load)
                made = server.counter("restless_keeper_plans_made_total") - plans
                keep(f"load, {arms} arms, {clients} clients", found | {"plans": int(made)})


def measure_batches(folder: Path, keep: Callable[[str, Found], None]) -> None:
    with serving(folder / "batches.db") as server:
        agents = [server.client.create(f"agent-{i}", ["x", "y"], seed=i) for i in range(8)]
        for agent in agents:
            agent.tell(decision=agent.decide(), state=0, reward=1.0)
        for clients in (1, 8):
            names = ",".join(agent.name for agent in agents[:clients])

            def observe(names: str = names, clients: int = clients) -> Found:
                slots = ",".join(str(agent.slots) for agent in agents[:clients])
                return server.load(names, clients, SECONDS, BATCH, slots)

            def play(names: str = names, clients: int = clients) -> Found:
                return server.load(names, clients, SECONDS, BATCH)

            for what, work in (("observations", observe), ("asks and tells", play)):
                found = beside_bare(folder, work)
                keep(f"batches, {what}, {clients} clients", found | {"observations": round(found["rate"] * BATCH)})


def measure_replay(folder: Path, keep: Callable[[str, Found], None]) -> None:
    store = folder / "long.db"
    with serving(store) as server:
        token, agent = server.token, server.client.create("a", ["x", "y"], seed=1)
        agent.ask()
        begun, number = time.perf_counter(), 0
        decisions: list[str] = []
        while agent.state()["seq"] < EVENTS and time.perf_counter() - begun < LONGEST:
            for _ in range(20):
                tells = [{"tell": {"decision": one, "state": i % 2, "reward": 0.0}} for i, one in enumerate(decisions)]
                number += 1
                asks = [{"ask": {"request": f"{number}.{i}"}} for i in range(500)]
                answers = agent.batch([*tells, *asks])
                decisions = [one["decision"] for one in answers if "numbers" in one]
        made = time.perf_counter() - begun
        events = int(agent.state()["seq"])
    found: Found = {
        "events": events,
        "made": round(made, 1),
        "bytes": sum(f.stat().st_size for f in folder.glob("long*")),
    }
    begun = time.perf_counter()
    with serving(store, token) as server:
        server.client.agent("a").decide("the first after the start")
        found["start"] = round(time.perf_counter() - begun, 2)
        found["listening"] = round(server.seconds, 2)
    begun = time.perf_counter()
    audit = [sys.executable, "-m", "restless_bandits", "audit", str(store), "--stored-plans", "--json"]
    said = json.loads(subprocess.run(audit, capture_output=True, text=True, check=True).stdout)
    assert said["same"], said
    found["replay"] = round((time.perf_counter() - begun) * EVENTS / events, 1)
    keep("replay", found)


def measure_agents(folder: Path, keep: Callable[[str, Found], None]) -> None:
    with serving(folder / "many.db") as server:
        empty = server.memory()
        begun = time.perf_counter()
        agents = [server.client.create(f"agent-{i}", ["x", "y"], seed=i) for i in range(AGENTS)]
        for number, agent in enumerate(agents):
            agent.tell(decision=agent.decide(), state=number % 2, reward=1.0)
        seconds = time.perf_counter() - begun
        held = int(server.counter("restless_keeper_agents_in_memory"))
        keep(
            "agents",
            {"agents": AGENTS, "gigabytes": round(server.memory(), 3), "empty": round(empty, 3), "held": held}
            | {"seconds": round(seconds, 1)},
        )


PARTS: dict[str, Callable[[Path, Callable[[str, Found], None]], None]] = {
    "load": measure_load,
    "batches": measure_batches,
    "replay": measure_replay,
    "agents": measure_agents,
}


def table(kept: Found) -> str:
    """What was measured, for the page."""
    heads = (
        "arms",
        "clients",
        "requests a second",
        "of bare commits",
        "ask p50, p99 (ms)",
        "tell p50, p99 (ms)",
        "plans made",
        "server (µs)",
    )
    lines = [_line(*heads), _line(*("---" for _ in heads))]
    for arms in ARMS:
        for clients in CLIENTS:
            one = kept.get(f"load, {arms} arms, {clients} clients")
            if one is not None:
                times = [f"{one[what]['p50']:.3g}, {one[what]['p99']:.3g}" for what in ("ask", "tell")]
                rates = (f"{one['rate']:,.0f}", f"{one['ratio']:.2f}")
                lines.append(_line(arms, clients, *rates, *times, one["plans"], one.get("microseconds", "")))
    busy = kept.get("machine", {}).get("load", 0)
    sentence = f"Other programs ran at the same time, a load of {busy:.0f}: a quiet machine has higher rates."
    told = [] if busy <= 1 else ["", sentence]
    return "\n".join([*lines, "", *wanted_table(kept), *told])


def _line(*cells: object) -> str:
    return "| " + " | ".join(map(str, cells)) + " |"


FEW = "load, 2 arms, 8 clients"
WANTED: list[tuple[str, str, str, tuple[str, ...], Callable[[float], bool]]] = [
    (
        "requests a second, 8 clients, 2 arms",
        "at least 2000",
        "load, 2 arms, 8 clients",
        ("rate",),
        lambda x: x >= 2000,
    ),
    (
        "the same as a share of bare commits",
        "at least 1/3",
        "load, 2 arms, 8 clients",
        ("ratio",),
        lambda x: x >= 1 / 3,
    ),
    (
        "p99 of ask while planning, 100 arms, 8 clients (ms)",
        "below 10",
        "load, 100 arms, 8 clients",
        ("ask", "p99"),
        lambda x: x < 10,
    ),
    (
        f"observations a second, {BATCH} in a request, 8 clients",
        "at least 20 000",
        "batches, observations, 8 clients",
        ("observations",),
        lambda x: x >= 20_000,
    ),
    (
        f"tells a second, {BATCH} tells and {BATCH} asks in a request, 8 clients",
        "",
        "batches, asks and tells, 8 clients",
        ("observations",),
        lambda _: True,
    ),
    ("replay of a million events (s)", "below 60", "replay", ("replay",), lambda x: x < 60),
    ("start with a million events, until an ask is answered (s)", "below 2", "replay", ("start",), lambda x: x < 2),
    ("1000 agents of two arms (GB)", "below 1", "agents", ("gigabytes",), lambda x: x < 1),
]


def wanted_table(kept: Found) -> list[str]:
    """What was wanted, and whether it was reached."""
    lines = [_line("", "wanted", "measured", "met"), _line(*4 * ("---",))]
    for what, wanted, name, path, met in WANTED:
        if name in kept:
            value = kept[name]
            for key in path:
                value = value[key]
            shown = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            lines.append(_line(what, wanted, shown, "" if not wanted else "yes" if met(value) else "**no**"))
    return lines


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("words", nargs="*", help="parts to measure; all if there is none")
    options.add_argument("--dry", action="store_true", help="keep nothing")
    given = options.parse_args()
    found = pages.load(KEPT)

    def keep(name: str, measured: Found) -> None:
        print(name, json.dumps(measured), flush=True)
        found[name] = measured
        if not given.dry:
            pages.keep(KEPT, found)

    begun = time.perf_counter()
    load = os.getloadavg()[0]
    keep("machine", {"load": round(load, 1), "cores": os.cpu_count()})
    if load > 1:
        print(f"the machine is busy (load {load:.1f}): rates will be too low", file=sys.stderr)
    with tempfile.TemporaryDirectory() as folder:
        for name, measure in PARTS.items():
            if not given.words or any(word in name for word in given.words):
                measure(Path(folder), keep)
    print("\n".join(wanted_table(found)))
    print(f"took {time.perf_counter() - begun:.0f} s")
    if not given.dry:
        pages.write()


if __name__ == "__main__":
    main()
