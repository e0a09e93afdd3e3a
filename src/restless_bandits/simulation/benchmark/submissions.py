"""Submissions: entrants, rows of runs, scores, and the JSON file of a track's runs."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import os
import platform
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits import __version__
from restless_bandits._internal.errors import ProblemError, shortened
from restless_bandits._internal.files import read_file
from restless_bandits._internal.validation import is_number, is_whole, to_jsonable
from restless_bandits.learning.learners import learner as make_learner
from restless_bandits.model.tasks import REVEALABLE
from restless_bandits.registry import ALIASES, LEARNERS, ORACLES, is_foreign, load, source_mark
from restless_bandits.simulation.benchmark.entrant import OWN_POLICIES
from restless_bandits.simulation.benchmark.instances import TRACKS, Instance, instances_of
from restless_bandits.simulation.storage import fingerprint

FORMAT = 1
KINDS = ("policy", "learner", "program")
CONFIDENCE = 0.95
SAME = 1e-9
"""The largest relative difference of equal numbers, after a passage through text."""
LEARNING = ("learning-pulled", "learning-observed", "logs")
"""Tracks whose entrants do not know the parameters, unless these are revealed."""
MODULE = "restless_bandits.simulation.benchmark.entrant"


@dataclass(frozen=True)
class Entrant:
    """An entrant of a track, and the command of its process."""

    kind: str
    name: str
    command: tuple[str, ...]
    code: str
    """A digest of the code, with the package's own version where the package plays."""
    revealed: tuple[str, ...] = ()
    """Revealed parts of the problem in tracks without known parameters: an entrant so revealed is a reference."""

    @classmethod
    def of(cls, track: str, kind: str, name: str, revealed: Sequence[str] = ()) -> Entrant:
        """Return the entrant of an option of the command line."""
        for word in revealed:
            if word not in REVEALABLE:
                raise ProblemError(f"cannot reveal {shortened(word)}; choose from {', '.join(REVEALABLE)}")
        if revealed and track not in LEARNING:
            raise ProblemError(f"track {track} shows all parameters; leave out --reveal")
        if kind == "program":
            words = shlex.split(name)
            if not words:
                raise ProblemError("the program is empty; give a command such as 'python mine.py'")
            return cls(
                kind, shlex.join(map(_without_folder, words)), tuple(words), _code_of_files(words), tuple(revealed)
            )
        command = (sys.executable, "-m", MODULE, kind, name)
        if kind == "learner":
            made = make_learner(name)
            revealed_words = {*revealed, *made.needs} if track in LEARNING else set()
            return cls(kind, name, command, _code_of(type(made)), tuple(sorted(revealed_words)))
        if name in OWN_POLICIES:
            return cls(kind, name, command, _own_code(), tuple(revealed))
        if name in ORACLES.own:
            return cls(kind, name, command, _own_code(), ("problem",) if track in LEARNING else ())
        if ":" not in name:
            known = ", ".join([*OWN_POLICIES, *ORACLES.own])
            raise ProblemError(f"there is no policy {shortened(name)}; choose from {known}, or give module:function")
        return cls(kind, name, command, _code_of(load(name, "policy")), tuple(revealed))

    def as_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, "name": self.name, "revealed": list(self.revealed)}


def _own_code() -> str:
    return f"restless-bandits {__version__}, code {fingerprint()}"


def _code_of(thing: Any) -> str:
    return f"source {source_mark([thing])}" if is_foreign(thing) else _own_code()


def _code_of_files(words: Sequence[str]) -> str:
    """Return a digest of the files that a command names, except for installed programs."""
    mark = hashlib.sha256()
    for word in words[1:] if len(words) > 1 else words:
        if Path(word).is_file():
            mark.update(read_file(word))
    return f"files {mark.hexdigest()[:16]}"


def _without_folder(word: str) -> str:
    """Return a word of a command without the folders of a path: a submission names no private folders."""
    return Path(word).name if os.sep in word else word


@dataclass(frozen=True)
class Seeds:
    """The seeds of a submission: public, or of a file of held-out seeds."""

    held_out: tuple[int, ...] = ()
    mark: str = ""

    @classmethod
    def from_file(cls, path: str | Path) -> Seeds:
        """Return held-out seeds: whole numbers, one a line."""
        content = read_file(path)
        words = content.decode(errors="replace").split()
        if not words or not all(word.isdecimal() and len(word) < 19 for word in words):
            raise ProblemError(f"{path} holds no seeds; write whole numbers of at most 18 digits, one a line")
        return cls(tuple(map(int, words)), hashlib.sha256(content).hexdigest()[:12])

    @property
    def label(self) -> str:
        return f"held-out {self.mark}" if self.mark else "public"

    def of(self, instance: Instance, full: bool) -> tuple[int, ...]:
        """Return the seeds of an instance, as many as its public ones."""
        public = instance.seeds_of(full)
        if not self.mark:
            return public
        if len(self.held_out) < len(public):
            raise ProblemError(
                f"the file of held-out seeds has {len(self.held_out)}, and {instance.name} needs {len(public)}; add "
                "some"
            )
        return self.held_out[: len(public)]


@dataclass(frozen=True)
class Row:
    """A run: an instance, the number of a seed, and the reward with the values that the score relates to."""

    instance: str
    seed: int
    """The position of the seed among the seeds of the instance, from 0 on."""
    reward: float
    random: float
    best: float
    cpu: float
    """CPU seconds of the entrant in units of the reference program; NaN where the system does not tell."""
    seconds: float
    error: str = ""
    """The failure of the entrant, for which the run counts as random play."""

    @property
    def score(self) -> float:
        return (self.reward - self.random) / (self.best - self.random)

    def as_dict(self) -> dict[str, Any]:
        return dict(to_jsonable(asdict(self)))

    @classmethod
    def from_dict(cls, given: Any, origin: str) -> Row:
        """Return a row of a file."""
        if not isinstance(given, dict) or given.keys() != cls.__dataclass_fields__.keys():
            raise ProblemError(
                f"{origin}: {shortened(given)} is no row; it needs {', '.join(cls.__dataclass_fields__)}"
            )
        row = dict(given)
        row["cpu"] = math.nan if row["cpu"] is None else row["cpu"]
        numbers = [row[key] for key in ("reward", "random", "best", "cpu", "seconds")]
        texts = [row["instance"], row["error"]]
        if not all(map(is_number, numbers)) or not is_whole(row["seed"]) or not all(isinstance(t, str) for t in texts):
            raise ProblemError(f"{origin}: {shortened(given)} is no row; a number is missing")
        if not row["best"] > row["random"]:
            raise ProblemError(f"{origin}: best of {row['instance']!r} is {row['best']:g}, not above random play")
        return cls(**row)


@dataclass(frozen=True)
class ScoreSummary:
    """A mean score with the ends of its confidence interval."""

    mean: float
    low: float
    high: float
    cpu: float
    """Mean CPU units of a run."""
    failures: int = 0

    def as_dict(self) -> dict[str, Any]:
        return dict(to_jsonable(asdict(self)))


@dataclass(frozen=True)
class Submission:
    """All runs of an entrant in a track."""

    track: str
    entrant: Mapping[str, Any]
    full: bool
    seeds: str
    code: str
    versions: Mapping[str, str]
    machine: Mapping[str, Any]
    date: str
    rows: tuple[Row, ...] = field(repr=False)

    @cached_property
    def by_instance(self) -> dict[str, ScoreSummary]:
        """The score of each instance."""
        return {name: _summary([self._rows_of(name)]) for name in dict.fromkeys(row.instance for row in self.rows)}

    @cached_property
    def score(self) -> ScoreSummary:
        """The mean over instances of the mean over seeds."""
        return _summary([self._rows_of(name) for name in self.by_instance])

    @property
    def worst(self) -> str:
        """The instance with the least score."""
        return min(self.by_instance, key=lambda name: self.by_instance[name].mean)

    @property
    def name(self) -> str:
        return str(self.entrant["name"])

    @property
    def is_own(self) -> bool:
        """Whether the name is of an entrant of this package, whose code a file may choose."""
        if self.entrant["kind"] == "learner":
            return LEARNERS.is_registered(LEARNERS.split(ALIASES.get(self.name, self.name))[0])
        return self.entrant["kind"] == "policy" and (self.name in OWN_POLICIES or self.name in ORACLES.own)

    def _rows_of(self, name: str) -> list[Row]:
        return [row for row in self.rows if row.instance == name]

    def to_json(self) -> bytes:
        about = {key: getattr(self, key) for key in HEAD}
        total = self.score.as_dict() | {"worst": self.by_instance[self.worst].mean, "worst_instance": self.worst}
        found = {"format": FORMAT} | about | {"score": total}
        found["instances"] = {name: one.as_dict() for name, one in self.by_instance.items()}
        # A row on a line: a change of one run is a change of one line.
        head = json.dumps(to_jsonable(found), indent=1, ensure_ascii=False).removesuffix("\n}")
        lines = ",\n  ".join(json.dumps(row.as_dict(), ensure_ascii=False) for row in self.rows)
        return f'{head},\n "rows": [\n  {lines}\n ]\n}}\n'.encode()


HEAD = ("track", "entrant", "full", "seeds", "code", "versions", "machine", "date")
"""Fields of a submission besides its rows."""


def _summary(groups: Sequence[Sequence[Row]]) -> ScoreSummary:
    """Return the mean of the groups' means; runs of one group are independent, and so are groups."""
    from scipy import stats

    scores = [np.array([row.score for row in rows]) for rows in groups]
    mean = float(np.mean([one.mean() for one in scores]))
    freedom = sum(len(one) - 1 for one in scores)
    variance = sum(one.var(ddof=1) / len(one) for one in scores if len(one) > 1) / len(scores) ** 2
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * math.sqrt(variance) if freedom else 0.0
    cpu = [row.cpu for rows in groups for row in rows if math.isfinite(row.cpu)]
    failures = sum(bool(row.error) for rows in groups for row in rows)
    return ScoreSummary(mean, mean - reach, mean + reach, float(np.mean(cpu)) if cpu else math.nan, failures)


def describe(track: str, entrant: Entrant, full: bool, seeds: Seeds) -> dict[str, Any]:
    """Return the fields of a submission besides its rows; the machine is described by its class alone."""
    versions = {"restless-bandits": __version__, "python": platform.python_version(), "numpy": np.__version__}
    machine = {"system": platform.system(), "architecture": platform.machine(), "cpus": os.cpu_count()}
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "track": track,
        "entrant": entrant.as_dict(),
        "full": full,
        "seeds": seeds.label,
        "code": entrant.code,
        "versions": versions,
        "machine": machine,
        "date": date,
    }


def load_submission(path: str | Path) -> Submission:
    """Read a submission: known track, all instances and seeds, and scores that follow from the rows."""
    content = read_file(path)
    try:
        data = json.loads(content)
    except (ValueError, RecursionError):
        raise ProblemError(f"{path} is no submission: it is not JSON; `restless benchmark run` writes one") from None
    if not isinstance(data, dict) or not {*HEAD, "format", "rows", "score", "instances"} <= data.keys():
        raise ProblemError(f"{path} is no submission: a field is missing; `restless benchmark run` writes one")
    if data["format"] != FORMAT:
        raise ProblemError(f"{path} is in format {shortened(data['format'])}, not {FORMAT}; play the track again")
    head = {key: data[key] for key in HEAD}
    entrant, rows = head["entrant"], data["rows"]
    revealed = entrant.get("revealed") if isinstance(entrant, dict) else None
    if not isinstance(revealed, list) or entrant.get("kind") not in KINDS or not isinstance(entrant.get("name"), str):
        raise ProblemError(f"{path}: entrant is {shortened(entrant)}; it needs a kind, a name and what it was revealed")
    texts = all(isinstance(head[key], str) for key in ("track", "seeds", "code", "date"))
    tables = all(isinstance(head[key], dict) for key in ("versions", "machine"))
    if not texts or not tables or not isinstance(head["full"], bool) or not isinstance(rows, list) or not rows:
        raise ProblemError(f"{path} is no submission: a field is of a wrong kind; play the track again")
    if head["track"] not in TRACKS:
        raise ProblemError(f"{path}: there is no track {shortened(head['track'])}; choose from {', '.join(TRACKS)}")
    found = Submission(**head, rows=tuple(Row.from_dict(row, str(path)) for row in rows))
    _check_complete(found, str(path))
    _check_references(found, str(path))
    _check_scores(found, data, str(path))
    return found


def _check_complete(found: Submission, origin: str) -> None:
    """Refuse missing, repeated and unknown runs."""
    wanted = [
        (instance.name, number)
        for instance in instances_of(found.track)
        for number in range(len(instance.seeds_of(found.full)))
    ]
    given = [(row.instance, row.seed) for row in found.rows]
    missing = next((run for run in wanted if run not in given), None)
    if missing is not None:
        raise ProblemError(
            f"{origin}: the run of {missing[0]}, seed {missing[1] + 1}, is missing; play the track again"
        )
    known = set(wanted)
    extra = next((run for number, run in enumerate(given) if run not in known or run in given[:number]), None)
    if extra is not None:
        raise ProblemError(f"{origin}: the run of {extra[0]}, seed {extra[1] + 1}, is no run of track {found.track}")
    if not found.seeds.startswith(("public", "held-out ")):
        raise ProblemError(f"{origin}: seeds is {shortened(found.seeds)}; it must be public or held-out")


def _check_references(found: Submission, origin: str) -> None:
    """Refuse other values of random play and of the best, where these are stored with the instance."""
    stored = {instance.name: instance.stored for instance in instances_of(found.track)}
    for row in found.rows:
        reference = stored[row.instance]
        if reference is not None and not (same(row.random, reference.random) and same(row.best, reference.best)):
            raise ProblemError(
                f"{origin}: {row.instance} has the values {row.random:.9g} and {row.best:.9g} for random play and the "
                f"best, and the instance {reference.random:.9g} and {reference.best:.9g}"
            )


def _check_scores(found: Submission, data: Mapping[str, Any], origin: str) -> None:
    """Refuse scores that do not follow from the rows."""
    given = data["score"]
    claims = {"the track": (given, found.score)}
    per_instance = data["instances"]
    if not isinstance(per_instance, dict) or per_instance.keys() != found.by_instance.keys():
        raise ProblemError(f"{origin}: its instances are not those of its rows; play the track again")
    claims |= {name: (per_instance[name], one) for name, one in found.by_instance.items()}
    for what, (claim, computed) in claims.items():
        mean: Any = claim.get("mean") if isinstance(claim, dict) else None
        if not is_number(mean) or not same(mean, computed.mean):
            raise ProblemError(
                f"{origin}: the score of {what} is {shortened(mean)}, and its rows give {computed.mean:.9g}; the "
                "numbers were changed"
            )


def same(one: float, other: float) -> bool:
    """Whether two numbers are equal but for their passage through text."""
    return abs(one - other) <= SAME * max(1.0, abs(one), abs(other))
