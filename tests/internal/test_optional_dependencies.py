"""The command that installs an extra: from a clone, and from an index."""

from pathlib import Path

import pytest

from restless_bandits._internal import optional_dependencies
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.optional_dependencies import check_installed, install_command


def test_the_command_names_the_clone_or_the_project(monkeypatch):
    clone = Path(optional_dependencies.__file__).parents[3]
    assert (clone / "pyproject.toml").is_file()
    assert install_command("plots") == f"pip install '{clone}[plots]'"
    monkeypatch.setattr(optional_dependencies, "__file__", "/usr/lib/python3/site-packages/restless_bandits/a/b.py")
    assert install_command("plots") == "pip install 'restless-bandits[plots]'"
    with pytest.raises(
        ProblemError, match=r"the service needs no-such; pip install 'restless-bandits\[service\]' brings"
    ):
        check_installed("the service", "json", "no_such")
