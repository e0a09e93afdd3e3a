"""The results of a full reproduction that ship with the package, and the first runs of each of its lines.

The folder ``stored`` holds three files. ``results.json.xz`` is the ``results.json`` of the full reproduction.
``runs.json.xz`` holds the regret of the first runs of every line at its horizons. ``stamp.json`` holds the date of the
full reproduction and the code version with which these runs were played last.

Keys are names of items, protocols and lines. A stored file names no module of the package.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError
from restless_bandits._internal.files import save_file
from restless_bandits._internal.validation import Array, to_jsonable
from restless_bandits.paper.experiments.curves import Curve

RESULTS, RUNS, STAMP = "results.json.xz", "runs.json.xz", "stamp.json"


@dataclass(frozen=True)
class Stamp:
    """The origin of stored results."""

    date: str
    """The day of the full reproduction."""
    code: str
    """The fingerprint of the code that was last seen to play the stored runs."""
    restamped: str | None = None
    """The day on which ``--restamp`` renewed the fingerprint."""


@dataclass(frozen=True, eq=False)
class Sample:
    """The regret of the first runs of one line: arrays (run, horizon)."""

    item: str
    protocol: str
    label: str
    spec: str
    kind: str
    horizons: tuple[int, ...]
    regret: Array
    spread: Array
    """The regret of the kind whose standard deviation is compared."""

    @classmethod
    def of(cls, item: str, protocol: str, curve: Curve) -> Sample:
        horizons = tuple(curve.horizons.tolist())
        return cls(item, protocol, curve.label, curve.spec, curve.kind, horizons, curve.regret, curve.spread)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Sample:
        regret = np.array(data["regret"], dtype=float)
        spread = np.array(data["spread"], dtype=float) if "spread" in data else regret
        horizons = tuple(int(one) for one in data["horizons"])
        if regret.ndim != 2 or regret.shape[1] != len(horizons) or spread.shape != regret.shape:
            raise ValueError("arrays of runs by horizons differ in shape")
        item, protocol, label, spec, kind = (str(data[key]) for key in ("item", "protocol", "label", "spec", "kind"))
        return cls(item, protocol, label, spec, kind, horizons, regret, spread)

    def as_dict(self) -> dict[str, Any]:
        words = {key: getattr(self, key) for key in ("item", "protocol", "label", "spec", "kind", "horizons")}
        spread = {} if np.array_equal(self.spread, self.regret) else {"spread": self.spread}
        return {**words, "regret": self.regret, **spread}

    @property
    def runs(self) -> int:
        return len(self.regret)

    def columns(self, horizons: Sequence[int]) -> tuple[Array, Array]:
        """Return regret and spread at some of the horizons."""
        places = [self.horizons.index(one) for one in horizons]
        return self.regret[:, places], self.spread[:, places]


@dataclass(frozen=True, eq=False)
class StoredResults:
    """The results of a full reproduction, and a sample of its runs."""

    results: Mapping[str, Any]
    samples: Mapping[tuple[str, str, str], Sample]
    """By item, protocol and line."""
    stamp: Stamp

    @classmethod
    def read(cls, folder: Path | None = None) -> StoredResults:
        """Read a folder, by default the one of the package."""
        place = shipped_folder() if folder is None else folder
        try:
            results = json.loads(lzma.decompress((place / RESULTS).read_bytes()))
            samples = [
                Sample.from_dict(one) for one in json.loads(lzma.decompress((place / RUNS).read_bytes()))["lines"]
            ]
            stamp = Stamp(**json.loads((place / STAMP).read_text(encoding="utf-8")))
            if results["quick"]:
                raise ValueError("the results are those of a quick reproduction")
            by_line = {(one.item, one.protocol, one.label): one for one in samples}
            return cls(results, by_line, stamp)
        except OSError as error:
            reason = error.strerror or error
            raise ProblemError(
                f"cannot read the stored results in {place}: {reason}; install the package anew"
            ) from None
        except (lzma.LZMAError, EOFError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ProblemError(
                f"the stored results in {place} are damaged ({error}); install the package anew"
            ) from None

    @property
    def seed(self) -> int:
        return int(self.results["seed"])

    def panel(self, item: str, protocol: str) -> Mapping[str, Any]:
        """Return the numbers of one figure under one protocol."""
        for panel in self.results["figures"]:
            if (panel["item"], panel["protocol"]) == (item, protocol):
                found: Mapping[str, Any] = panel
                return found
        raise ProblemError(f"{item} has no stored results; leave out --quick to reproduce it in full")

    def claims(self, claim: str) -> list[Mapping[str, Any]]:
        """Return the entries of one claim, one for each protocol."""
        return [entry for entry in self.results["claims"] if entry["id"] == claim]

    def restamped(self, date: str, code: str) -> StoredResults:
        return replace(self, stamp=Stamp(self.stamp.date, code, date))

    def write(self, folder: Path) -> None:
        """Write the three files."""
        results = json.dumps(to_jsonable(dict(self.results)), separators=(",", ":")).encode()
        lines = ",\n".join(
            json.dumps(to_jsonable(one.as_dict()), separators=(",", ":")) for _, one in sorted(self.samples.items())
        )
        save_file(folder / RESULTS, lzma.compress(results, preset=9 | lzma.PRESET_EXTREME))
        save_file(folder / RUNS, lzma.compress(f'{{"lines":[\n{lines}\n]}}\n'.encode(), preset=9 | lzma.PRESET_EXTREME))
        self.write_stamp(folder)

    def write_stamp(self, folder: Path) -> None:
        save_file(folder / STAMP, (json.dumps(asdict(self.stamp), indent=1) + "\n").encode())


def shipped_folder() -> Path:
    """Return the folder of the package that holds the stored results."""
    with resources.as_file(resources.files(__package__)) as place:
        return place / "stored"
