import pytest

from restless_bandits.service import planning

from .keeping import Kept, plan_at_once


@pytest.fixture
def at_once(monkeypatch):
    """Plans are made in this process, at once."""
    monkeypatch.setattr(planning.background, "submit", plan_at_once)


@pytest.fixture
def kept(tmp_path, at_once):
    opened = []

    def make(**options):
        opened.append(Kept(tmp_path / f"{len(opened)}.db", **options))
        return opened[-1]

    yield make
    for one in opened:
        one.close()
