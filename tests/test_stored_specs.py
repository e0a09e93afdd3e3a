"""What is stored names registered learners and oracles only: no file and no store has a module imported."""

import json
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

import pytest

import restless_bandits as rb
from restless_bandits import Agent, ProblemError, registry
from restless_bandits.cli import main
from restless_bandits.learning.learners import learner
from restless_bandits.policies import Cycle, Plan, Slots
from restless_bandits.registry import LEARNERS

FOREIGN = """
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import restless_bandits as rb
from restless_bandits.policies import Plan, Slots
from restless_bandits.policies import Cycle, IndexPolicy

Path("imported").touch()


@dataclass(frozen=True)
class Turns(rb.Learner):
    slots: int = 10

    def plan(self, record, task, rng):
        return Plan(Cycle(task.plays), Slots(self.slots))


def equal(problem):
    return IndexPolicy(tuple(np.ones((n + 1, 1)) for n in problem.n_states), problem.plays)
"""
SPECS = (
    "foreign:Turns",
    "foreign:Turns:slots=3",
    "restless-ucb:oracle=foreign:equal,m=2",
    "ts-9:oracle=foreign:equal",
    "ts:prior=continuous,oracle=foreign:equal",
)
"""Specs of learners that play once the module is imported."""
NO_LEARNERS = (
    "os:system",
    "likelihood-ucb:oracle=os:system",
    "foreign:Path",
    "foreign:Turns:slots",
    "informed:oracle=foreign:equal:x=1",
    "ts:support=[0.5,foreign:equal]",
    "ts:support=[[foreign:equal]]",
    # A registered name before the colon makes no spec registered: the oracle of this word is in the module ``ts``.
    "informed:oracle=ts:equal",
    "informed:oracle=likelihood-ucb:equal",
    " foreign : Turns",
    "foreign :Turns",
)
"""Specs that make no learner, of which most would import a module before this shows."""
MODULES = ("foreign", "ts", "likelihood-ucb", "foreign ")
TASK = rb.Problem.builtin("paper-1").task(horizon=100)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A current folder with modules that leave a file when they are imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in MODULES:
        Path(f"{name}.py").write_text(FOREIGN)
    yield tmp_path
    forget()


def forget():
    """As in a new process: no module of the folder is imported, and none was."""
    for name in MODULES:
        sys.modules.pop(name, None)
    Path("imported").unlink(missing_ok=True)


def refused(work, *words):
    with pytest.raises(ProblemError) as told:
        work()
    sentence = str(told.value)
    assert "\n" not in sentence
    assert all(word in sentence for word in ("trust_modules=True", *words)), sentence
    assert not Path("imported").exists()
    assert "foreign" not in sys.modules
    return True


def lived(spec, **options):
    agent = Agent(spec, TASK, seed=1, **options)
    for slot in range(12):
        agent.ask()
        agent.tell(slot % 2, 0.0)
    return agent


def name_instead(path, spec, *, digest):
    """Let a stored agent name another learner, under a new digest or under none, as earlier versions had."""
    from restless_bandits.agent.agent_files import digest_of

    data = json.loads(path.read_text())
    del data["digest"]
    data["learner"] = spec
    path.write_text(json.dumps(data | ({"digest": digest_of(data)} if digest else {})))


@pytest.mark.parametrize("spec", SPECS)
def test_an_agents_file(spec):
    agent = lived(spec)
    agent.save("agent.json")
    forget()
    assert refused(lambda: Agent.load("agent.json"), "agent.json", "foreign:")
    assert refused(lambda: Agent.load("agent.json", trust_modules=False), "foreign:")
    assert Agent.load("agent.json", learner=agent.learner).learner is agent.learner
    forget()
    again = Agent.load("agent.json", trust_modules=True)
    assert Path("imported").exists()
    assert again.learner.spec == spec
    assert [again.ask() for _ in "a"] == [agent.ask() for _ in "a"]


@pytest.mark.parametrize("digest", [True, False])
@pytest.mark.parametrize("spec", [*SPECS, *NO_LEARNERS])
def test_a_file_that_was_made_to_harm(spec, digest):
    path = Path("agent.json")
    lived("round-robin").save(path)
    name_instead(path, spec, digest=digest)
    assert refused(lambda: Agent.load(path))


def test_a_path_of_attributes_is_no_learner_with_trust_either():
    path = Path("agent.json")
    lived("round-robin").save(path)
    for spec in ("os:system", "likelihood-ucb:oracle=os:system"):
        name_instead(path, spec, digest=True)
        with pytest.raises(ProblemError):
            Agent.load(path, trust_modules=True)


@pytest.mark.parametrize("spec", SPECS)
def test_a_history(spec):
    agent = lived(spec, history="agent.jsonl")
    forget()
    assert refused(lambda: Agent.replay("agent.jsonl"), "agent.jsonl", "foreign:")
    assert Agent.replay("agent.jsonl", learner=agent.learner).to_dict() == agent.to_dict()
    forget()
    assert Agent.replay("agent.jsonl", trust_modules=True).to_dict() == agent.to_dict()
    assert Path("imported").exists()


@pytest.mark.parametrize("spec", SPECS)
def test_a_learner_that_came_later_in_a_history(spec):
    agent = lived("round-robin", history="agent.jsonl")
    agent.learner = spec
    agent.ask()
    forget()
    assert refused(lambda: Agent.replay("agent.jsonl"), "agent.jsonl", "foreign:")
    assert Agent.replay("agent.jsonl", trust_modules=True).to_dict() == agent.to_dict()
    assert Path("imported").exists()


@pytest.mark.parametrize("spec", [*SPECS, *NO_LEARNERS])
def test_a_spec_itself(spec):
    assert refused(lambda: learner(spec, trust_modules=False))


@dataclass(frozen=True)
class InTurn(rb.Learner):
    """What an installed package could bring, under another name than its own."""

    name: ClassVar[str] = "its-own-name"
    words: object = ()

    def plan(self, record, task, rng):
        return Plan(Cycle(task.plays), Slots(5))


def by_whittle(problem):
    return rb.oracles.policy("whittle", problem)


@pytest.fixture
def plugged_in(monkeypatch):
    """A learner and an oracle as if an installed package had entered them."""
    groups = {"learners": {"in-turn": "InTurn"}, "oracles": {"by-whittle": "by_whittle"}}
    found = {
        f"restless_bandits.{group}": [EntryPoint(name, f"{__name__}:{what}", group) for name, what in entries.items()]
        for group, entries in groups.items()
    }
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.get(group, []))
    registry.plug_ins.cache_clear()
    yield
    registry.plug_ins.cache_clear()


@pytest.mark.parametrize(
    "spec",
    [
        "in-turn",
        "in-turn:words=[1,yes]",
        f"{__name__}:InTurn",
        "restless-ucb:oracle=by-whittle,m=2",
        f"restless-ucb:oracle={__name__}:by_whittle,m=2",
        "posterior",
        "ts:support=[[[0.5,0.5],[0.4,0.6]]]",
    ],
)
def test_what_is_registered_is_loaded(plugged_in, spec):
    agent = lived(spec)
    agent.save("agent.json")
    again = Agent.load("agent.json")
    assert again.learner == agent.learner
    assert again.ask() == agent.ask()


def test_what_the_program_has_registered_is_loaded():
    lived(InTurn()).save("agent.json")
    assert refused(lambda: Agent.load("agent.json"), f"{__name__}:InTurn")
    LEARNERS["mine"] = InTurn
    try:
        assert Agent.load("agent.json").learner == InTurn()
    finally:
        del LEARNERS["mine"]


def test_results_policies_and_runs():
    """They name learners, and are read without making any."""
    problem = rb.Problem.builtin("paper-1")
    found = rb.simulate(problem, "foreign:Turns", 20, runs=1)
    found.save("result.npz")
    rb.oracles.oracle("foreign:equal")(problem).policy.save("policy.npz")
    forget()
    again = rb.SimulationResult.load("result.npz")
    assert again.learners == ("foreign:Turns",)
    assert (again.regret() == found.regret()).all()
    assert "foreign:Turns" in repr(again)
    rb.load_policy("policy.npz")
    assert not Path("imported").exists()


@pytest.mark.skipif(find_spec("sqlalchemy") is None, reason="needs sqlalchemy; pip install restless-bandits[service]")
class TestStores:
    @pytest.fixture(params=["create", "learner", "snapshot"])
    def store(self, request, monkeypatch):
        """A store whose agent has a learner of the module: from its first event, from a later one, from a snapshot."""
        from restless_bandits.service import planning
        from tests.service.one_agent import Kept, plan_at_once

        monkeypatch.setattr(planning.background, "submit", plan_at_once)
        every = {"snapshot_every": 4} if request.param == "snapshot" else {}
        made = Kept("store.db", trust_modules=True, **every)
        made.create(learner="round-robin" if request.param == "learner" else "foreign:Turns")
        if request.param == "learner":
            made.patch(learner="foreign:Turns")
        for _ in range(12):
            made.tell(made.ask(), state=0, reward=1.0)
        made.close()
        with closing(sqlite3.connect("store.db")) as connection:
            snapshots = connection.execute("SELECT count(*) FROM snapshots").fetchone()[0]
        assert (snapshots > 0) == (request.param == "snapshot")
        forget()
        return made

    def test_served(self, store):
        from restless_bandits.service.operations import ServiceError

        store.options = {}
        store.open()
        try:
            for work in (store.read, store.ask, store.record):
                with pytest.raises(ServiceError) as told:
                    work()
                assert told.value.status == 503
                assert all(word in str(told.value) for word in ("agent 'a'", "'foreign:Turns'", "trust_modules=True"))
            assert not Path("imported").exists()
            store.options = {"trust_modules": True}
            store.reopen()
            assert store.ask()["arms"]
            assert Path("imported").exists()
        finally:
            store.close()

    def test_no_message_names_a_module(self, store):
        store.options = {}
        store.open()
        try:
            store.name = "b"
            with pytest.raises(ProblemError, match="trust_modules=True"):
                store.create(learner="foreign:Turns")
            store.create(learner="round-robin")
            with pytest.raises(ProblemError, match="trust_modules=True"):
                store.patch(learner="foreign:Turns")
            assert store.read()["learner"] == "round-robin"
        finally:
            store.close()
        assert not Path("imported").exists()

    def test_audited(self, store, monkeypatch, capsys):
        def restless(*words):
            monkeypatch.setattr(sys, "argv", ["restless", *words])
            with pytest.raises(SystemExit) as stopped:
                main()
            return stopped.value.code or 0, capsys.readouterr()

        code, said = restless("audit", "store.db")
        assert code == 2
        assert said.err.startswith("Error: cannot audit agent 'a': the learner 'foreign:Turns'")
        assert "--trust-modules" in said.err
        assert said.err.count("\n") == 1
        assert not Path("imported").exists()
        code, said = restless("audit", "store.db", "--trust-modules")
        assert (code, said.err) == (0, "")
        assert Path("imported").exists()

    def test_serve_hands_the_option_on(self, monkeypatch):
        from restless_bandits.service.api import server

        asked, kept = [], []

        def keeper(*_, **options):
            kept.append(options["trust_modules"])
            raise ProblemError("enough")

        with monkeypatch.context() as patch:
            patch.setattr(server, "serve", lambda settings, _: asked.append(settings))
            for words in ((), ("--trust-modules",)):
                patch.setattr(sys, "argv", ["restless", "serve", "--port", "0", *words])
                with pytest.raises(SystemExit):
                    main()
        monkeypatch.setattr(server, "CommandProcessor", keeper)
        for settings in asked:
            with pytest.raises(ProblemError, match="enough"):
                server.serve(settings, lambda _: None)
        assert kept == [False, True]

    def test_backed_up(self, store):
        from restless_bandits.service.storage.copy_store import copy_store
        from restless_bandits.service.storage.store import open_store

        with closing(open_store("store.db")) as opened:
            opened.backup("backup.db")
            copy_store(opened, "sqlite:///copy.db")
        assert not Path("imported").exists()
