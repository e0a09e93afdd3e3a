"""The same service on PostgreSQL: two processes on one database, of which one is killed again and again."""

import os
import random
from concurrent.futures import ThreadPoolExecutor

import pytest

from restless_bandits._internal.errors import ProblemError
from restless_bandits.service.audit import audit
from restless_bandits.service.operations import Ask, Create, ServiceError
from restless_bandits.service.storage.store import open_store
from tests.service.one_agent import GUARD, Kept
from tests.service.postgres import cluster, reason_to_skip
from tests.service.processes import Served
from tests.service.test_kills import PLANNING, check_under_kills

KILLS = int(os.environ.get("RESTLESS_KILLS", "10")) // 2

pytestmark = [pytest.mark.slow, pytest.mark.skipif(reason_to_skip() is not None, reason=reason_to_skip() or "")]


@pytest.fixture(scope="module")
def database():
    with cluster() as make:
        yield make


def test_what_one_process_does_the_other_knows(database, at_once):
    url = database()
    one, two = Kept(url, snapshot_every=10), Kept(url, snapshot_every=10)
    one.create(learner="likelihood-ucb", arms="xyz")
    for i in range(20):
        here, available = (one, two) if i % 2 else (two, one)
        decision = here.ask(f"r{i}")
        assert decision["slot"] == i + 1
        assert available.ask(f"r{i}") == decision
        available.tell(decision, state=i // 2 % 2, reward=1.0)
        with pytest.raises(ServiceError, match="the first report stands"):
            here.tell(decision, state=1 - i // 2 % 2, reward=1.0)
    assert one.read() == two.read()
    assert one.record() == two.record()
    two.patch(retire_arm="y")
    assert one.read()["task"]["arms"][1]["in_service"] is False
    one.delete()
    with pytest.raises(ServiceError, match="there is no agent"):
        two.ask()
    found = audit(one.store)
    assert found.same, found.sentence
    assert found.decisions == 20
    one.close()
    two.close()


def test_both_at_once(database, at_once):
    """Many threads on two keepers: the rows are taken in one order, so nobody waits for ever."""
    url = database()
    one, two = Kept(url), Kept(url)
    names = [f"agent {i}" for i in range(4)]
    with ThreadPoolExecutor(8) as pool:

        def create(number):
            made = [Create(name, ["x", "y"], learner="ucb1", seed=1) for name in names]
            random.Random(number).shuffle(made)
            writer = (one, two)[number % 2].writer
            return [writer.submit(each.name, [each]).result(GUARD)[0]["name"] for each in made]

        assert all(sorted(done) == names for done in pool.map(create, range(8)))

        def ask(number):
            draws = random.Random(number)
            writer = (one, two)[number % 2].writer
            waiting = []
            for i in range(25):
                name = draws.choice(names)
                waiting.append((name, writer.submit(name, [Ask(f"{number}.{i}")])))
            return [(name, future.result(GUARD)[0]["decision"]) for name, future in waiting]

        decisions = [decision for done in pool.map(ask, range(8)) for decision in done]
    assert len(set(decisions)) == 200
    found = audit(two.store)
    assert found.same, found.sentence
    assert found.decisions == 200
    one.close()
    two.close()


def test_one_of_two_is_killed_again_and_again(database):
    url = database()
    steady, mortal = Served(url), Served(url)
    check_under_kills([steady, mortal], KILLS, mortal=mortal)


def test_either_of_two_is_killed_with_its_workers(database):
    url = database()
    services = [Served(url, workers=True), Served(url, workers=True)]
    check_under_kills(services, max(2, KILLS // 2), ("one", "clocked"), pause=PLANNING)


def test_a_connection_that_is_cut_off_costs_nobody_an_answer(database, at_once):
    url = database()
    a, other = Kept(url), open_store(url)
    a.create()
    assert a.ask()["slot"] == 1
    with other.writing() as session:
        session.driver.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    assert a.ask()["slot"] == 2
    assert len(a.log()) == 5
    a.close()
    other.close()


def test_a_database_that_is_gone_is_told_in_the_words_of_the_store(database, at_once):
    url, other = database(), open_store(database())
    a = Kept(url)
    a.create()
    token = a.store.tokens.make("play")
    name = url.partition("@/")[2].partition("?")[0]
    with other.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql(f'DROP DATABASE "{name}" WITH (FORCE)')
    for way in (a.ask, a.read, a.log, a.writer.health, lambda: a.store.tokens.role_of(token)):
        with pytest.raises(ServiceError, match=r"the store is unavailable now: .*; send the request again") as caught:
            way()
        assert caught.value.status == 503
        assert "\n" not in str(caught.value)
    a.close()
    other.close()


def test_a_database_that_is_not_there(database):
    url = database()
    with pytest.raises(ProblemError, match="cannot open the store"):
        open_store(url.replace("/d", "/nobody"))
    opened = open_store(url)
    with pytest.raises(ProblemError, match="use pg_dump"):
        opened.backup("somewhere")
    opened.close()
