"""Finished runs on disk: written atomically on completion, and reused.

A results folder holds ``manifest.json``, the description of the folder. For each *key* (problem content, learner, seed,
horizon, checkpoints, feedback delays, version, code, source of a third-party learner) the folder has a subfolder with
``key.json`` and block files. A block file holds some runs with their numbers. A block is written under a temporary
name, flushed to the disk and then renamed, and is therefore complete or absent; interrupted runs are played again.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import re
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits import __version__
from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import read_archive, write_file
from restless_bandits.learning.learners.base import Learner
from restless_bandits.model.rewards import Range
from restless_bandits.oracles.solution import Oracle
from restless_bandits.registry import ORACLES, source_mark
from restless_bandits.simulation.jobs import SimulationJob, is_priced, pull_columns
from restless_bandits.simulation.results import Outcomes

WHAT = "results of restless simulate"
FORMAT = 1
BLOCKS = "runs-*.npz"
HIDDEN = (".DS_Store", "desktop.ini", "Thumbs.db")
"""Files of file browsers in an otherwise empty folder."""
NO_PART_IN_RUNS = ("cli", "logs", "paper", "plots.py", "service", "simulation/benchmark", "testing.py")
"""Parts of the package that cannot change a run."""


def open_folder(path: str | Path) -> Path:
    """Return a results folder, created if missing; refuse a folder with other content."""
    folder = Path(path)
    manifest = folder / "manifest.json"
    try:
        if not manifest.exists():
            if folder.is_dir() and any(entry.name not in HIDDEN for entry in folder.iterdir()):
                raise ProblemError(f"{folder} holds other files and no results of ours; name a new or empty folder")
            folder.mkdir(parents=True, exist_ok=True)
            label = {"what": WHAT, "format": FORMAT, "by": f"restless-bandits {__version__}"}
            write_file(manifest, (json.dumps(label, indent=2) + "\n").encode())
        text = manifest.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ProblemError(f"cannot use {folder} for results: {error.strerror or error}") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or found.get("what") != WHAT:
        raise ProblemError(f"{manifest} is not one of ours; name a new or empty folder")
    if found.get("format") != FORMAT:
        raise ProblemError(f"{folder} is in format {found.get('format')!r}, not {FORMAT}; name a new folder")
    return folder


@cache
def fingerprint() -> str:
    """Return a digest of the simulation code: runs stored by other code, of any version, are not reused."""
    package = Path(__file__).resolve().parent.parent
    mark = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if not any(name.is_relative_to(part) for part in NO_PART_IN_RUNS):
            mark.update(f"{name}\n".encode() + path.read_bytes())
    return mark.hexdigest()[:16]


def _parts_of(learner: Learner) -> list[Any]:
    """The classes and functions that determine a learner's plans, its oracle's included."""
    parts: list[Any] = list(type(learner).__mro__)
    word = getattr(learner, "oracle", None)
    if isinstance(word, str) and ":" in word:
        parts.append(ORACLES.find(word, trust_modules=True))
    return [part.solve if isinstance(part, Oracle) else part for part in parts]


@dataclass(frozen=True)
class RunStore:
    """The stored runs of a learner under a key."""

    folder: Path
    key: str
    checkpoints: tuple[int, ...]
    n_columns: int
    """The number of columns of pulls."""
    reward_range: Range
    slot_range: Range | None

    @classmethod
    def open(cls, folder: Path, job: SimulationJob) -> RunStore:
        """Return the place of a cell in a results folder."""
        problem, learner = job.problem, job.learner
        try:
            spec, source = learner.spec, source_mark(_parts_of(learner))
        except ProblemError as error:
            raise ProblemError(f"cannot store runs of {learner.name}: {error}") from None
        key = json.dumps(
            {
                "problem": problem.content,
                "learner": spec,
                "seed": job.seed,
                "horizon": job.horizon,
                "checkpoints": job.checkpoints,
                "answers": dataclasses.asdict(job.answers),
                "gaps": is_priced(problem),
                "version": __version__,
                "code": fingerprint(),
                "source": source,
            }
        )
        mark = hashlib.sha256(key.encode()).hexdigest()[:16]
        title = re.sub(r"[^A-Za-z0-9.=-]+", "_", f"{problem.name or 'problem'}-{spec}")[:80]
        place = folder / f"{title}-{mark}"
        try:
            place.mkdir(exist_ok=True)
            if not (place / "key.json").exists():
                write_file(place / "key.json", (key + "\n").encode())
        except OSError as error:
            raise ProblemError(f"cannot write {place}: {error.strerror or error}") from None
        columns = len(pull_columns(problem))
        return cls(place, key, job.checkpoints, columns, problem.reward_range, problem.slot_range)

    def load(self, runs: int) -> dict[int, Outcomes]:
        """Return the stored runs below ``runs``, each by its number.

        An unreadable block is dropped with a warning; its runs then count as not played.
        """
        found: dict[int, Outcomes] = {}
        for path in sorted(self.folder.glob(BLOCKS)):
            try:
                numbers, block = self._read(path)
            except OSError as error:
                raise ProblemError(f"cannot read {path}: {error.strerror or error}") from None
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
                warnings.warn(
                    f"{path} is damaged; it is dropped and its runs are played again", RuntimeWarning, stacklevel=2
                )
                with contextlib.suppress(OSError):
                    path.unlink()
                continue
            found |= {number: block.part(i) for i, number in enumerate(numbers) if number < runs}
        return found

    def _read(self, path: Path) -> tuple[list[int], Outcomes]:
        arrays = read_archive(path)
        numbers = [int(number) for number in arrays["runs"]]
        block = Outcomes.from_arrays(arrays)
        if str(arrays["key"]) != self.key or len(set(numbers)) != len(block.plan_lengths) or min(numbers) < 0:
            raise ValueError("not a block of this key")
        block.check(np.array(self.checkpoints), self.n_columns, self.reward_range, self.slot_range)
        return numbers, block

    def save(self, finished: dict[int, Outcomes]) -> None:
        """Write some finished runs as a block."""
        numbers = sorted(finished)
        arrays = Outcomes.stack([finished[number] for number in numbers]).arrays()
        arrays |= {"runs": np.array(numbers, dtype=np.int64), "key": np.array(self.key)}
        path = self.folder / f"runs-{numbers[0]:06d}-{numbers[-1]:06d}.npz"
        try:
            write_file(path, lambda file: np.savez(file, allow_pickle=False, **arrays))
        except OSError as error:
            raise ProblemError(
                f"cannot write {path}: {error.strerror or error}; stored runs are intact; "
                "make room and run the same again to resume"
            ) from None
