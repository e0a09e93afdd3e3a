"""The documentation does what it says: every page's code runs, and what it prints is what the page shows.

The contract for a page, README included:

- ``python`` blocks run in their order, in one namespace and one empty folder, with warnings as errors. ``__name__`` is
  not ``__main__``, so what takes minutes can stand under the usual guard.
- A ``text`` block straight after a ``python`` block is what that block prints; ``...`` stands for anything, and the
  amount of white space does not count. Output that another CPU may round differently goes into a fence without a
  language, which is not checked.
- ``toml`` blocks are problems.
- Lines of ``console`` blocks that begin with ``restless`` or ``$ restless`` are read by the command line, not run.

That links lead somewhere is checked by ``make docs``.
"""

import contextlib
import doctest
import io
import re
import shlex
import sys
import textwrap
import types
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer

import restless_bandits as rb
from restless_bandits.cli.app import app
from restless_bandits.registry import LEARNERS, ORACLES
from restless_bandits.simulation import jobs

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[a-z]*)[^\n`]*\n(?P<body>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE
)


@dataclass(frozen=True)
class Block:
    language: str
    body: str
    line: int
    follows: str
    """The language of the block straight before it, with nothing but space between them."""


def blocks(text):
    found, end, before = [], 0, ""
    for match in FENCE.finditer(text):
        follows = before if not text[end : match.start()].strip() else ""
        line = text[: match.start()].count("\n") + 2
        found.append(Block(match["language"], textwrap.dedent(match["body"]), line, follows))
        end, before = match.end(), match["language"]
    return found


def pages_with(*languages):
    chosen = [page for page in PAGES if any(block.language in languages for block in blocks(page.read_text("utf-8")))]
    return pytest.mark.parametrize("page", chosen, ids=[str(page.relative_to(ROOT)) for page in chosen])


@pytest.fixture(scope="module", autouse=True)
def played_once():
    """Runs that several pages simulate are played once: learner, problem, horizon, seed and number decide a run."""
    played = {}
    play_run = jobs.play_run

    def play(learner, world, horizon, checkpoints, **given):
        if not type(learner).__module__.startswith("restless_bandits.learners."):
            return play_run(learner, world, horizon, checkpoints, **given)
        key = (learner.spec, world.problem.content, horizon, *checkpoints.tolist(), *given.items())
        if key not in played:
            played[key] = play_run(learner, world, horizon, checkpoints, **given)
        return played[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jobs, "play_run", play)
        yield


@pages_with("python")
def test_code_runs_and_prints_what_the_page_shows(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    for names in (LEARNERS, ORACLES):  # which a page may add to
        monkeypatch.setattr(names, "homes", dict(names.homes))
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)  # where dataclasses look their annotations up
    printed = ""
    for block in blocks(page.read_text("utf-8")):
        if block.language == "python":
            # Blank lines in front make line numbers in a traceback those of the page.
            code = compile("\n" * (block.line - 1) + block.body, str(page), "exec")
            caught = io.StringIO()
            with contextlib.redirect_stdout(caught):
                exec(code, module.__dict__)
            printed = caught.getvalue()
        elif block.language == "text" and block.follows == "python":
            flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            same = doctest.OutputChecker().check_output(block.body, printed, flags)
            assert same, f"{page.name}, line {block.line}: the page shows\n{block.body}and the code prints\n{printed}"
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pages_with("toml")
def test_toml_blocks_are_problems(page):
    for block in blocks(page.read_text("utf-8")):
        if block.language == "toml":
            assert rb.Problem.from_toml(block.body, origin=f"{page.name}, line {block.line}").n_arms > 0


@pages_with("console")
def test_commands_exist(page):
    program = typer.main.get_command(app)
    for block in blocks(page.read_text("utf-8")):
        if block.language != "console":
            continue
        for line in block.body.replace("\\\n", " ").splitlines():  # a backslash carries a command on
            if line.removeprefix("$ ").startswith("restless "):
                _, *words = shlex.split(line.removeprefix("$ "), comments=True)
                # What follows these is for the shell.
                ends = [words.index(sign) for sign in (">", "|") if sign in words]
                parse(program, words[: min(ends, default=None)], f"{page.name}: {line}")


def parse(command, words, where):
    """Read a command line without running anything; words in front of a command's name are options of the program."""
    if len(words) == 1 and words[0] in {word for option in command.params for word in option.opts}:
        return
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"{where}: there is no command {words[0]!r}"
        command, *words = command.commands[words[0]], *words[1:]
    try:
        command.make_context(where, words)
    except Exception as error:  # of Click, which some versions of Typer bring along under a name of their own
        message = getattr(error, "message", repr(error))
        raise AssertionError(f"{where}: {message}") from None


def test_a_wrong_command_would_be_noticed():
    program = typer.main.get_command(app)
    for wrong in ("solv paper-1", "solve paper-1 --oracel exact", "simulate paper-1", "problems shew paper-1"):
        with pytest.raises(AssertionError, match=wrong):
            parse(program, wrong.split(), wrong)


def test_blocks_are_found():
    text = "a\n\n```python\nx = 1\n```\n\n```text\n1\n```\n\n=== b\n\n    ```toml\n    y = 2\n    ```\n"
    text += "c\n```text\nz\n```\n"
    assert [(block.language, block.body, block.follows) for block in blocks(text)] == [
        ("python", "x = 1\n", ""),
        ("text", "1\n", "python"),
        ("toml", "y = 2\n", ""),
        ("text", "z\n", ""),
    ]


def test_the_readme_and_the_changelog_are_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").split()) <= 450
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").partition("## [0.1.0]")[2]
    assert len([line for line in changes.splitlines() if line]) <= 60
