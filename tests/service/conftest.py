import tempfile
from pathlib import Path

import pytest

from restless_bandits.service import planning
from tests.service.one_agent import Kept, plan_at_once


@pytest.fixture
def at_once(monkeypatch):
    """Plans are made in this process, at once."""
    monkeypatch.setattr(planning.background, "submit", plan_at_once)


@pytest.fixture(scope="session")
def quick():
    """A folder in memory where there is one: most tests do not ask what a disk does."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)


@pytest.fixture
def kept(quick, at_once):
    opened = []

    def make(**options):
        folder = Path(tempfile.mkdtemp(dir=quick))
        opened.append(Kept(folder / "store.db", **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
