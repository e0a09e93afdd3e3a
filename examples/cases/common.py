"""What the case studies share: learners and yardsticks on a log, a table of them, and the pages they are shown on.

The cases are airports.py, wind.py and car_park.py. Each of them reads a log, says what is to be thought of the model,
lets learners play the log, and ends in a table and a picture; with ``--keep`` it writes its page in docs/cases anew.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import restless_bandits as rb

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "cases"
LEARNERS = ["likelihood-ucb", "ts-9", "ucb1"]
TOLD = ["whittle"]
"""A player who is told the chains that were fitted to the whole log, what is played included."""
BLOCKS = 40
"""Parts of a log, of weeks or so, between which a difference varies: where its standard error comes from."""

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Player:
    """What somebody earned in each slot of a log, or would have earned."""

    name: str
    earned: Array
    kind: str
    """learner, told (the fitted chains), or hindsight."""


def options(description: str, picture: str) -> argparse.ArgumentParser:
    """Return the command line that all cases have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path(picture), help="where the picture goes")
    parser.add_argument("--slots", type=int, help="play only so many slots")
    parser.add_argument("--keep", action="store_true", help="write the page in docs/cases anew")
    return parser


def rewards_of(trace: rb.data.Trace) -> Array:
    """Return what each arm paid in each slot that was logged, not a number where it was not: (slot, arm)."""
    slots, rows = np.unique(trace.times, return_inverse=True)
    found = np.full((len(slots), trace.n_arms), math.nan)
    found[rows, trace.arms] = trace.rewards
    return found


def in_hindsight(
    paid: Array, names: Sequence[str], phases: npt.NDArray[Any] | None = None, unit: str = ""
) -> list[Player]:
    """Return those who know the log: the best fixed arm, a timetable, an arm drawn at random, the best of every slot.

    Where an arm is not there, one of those that are is drawn in its place.
    """
    drawn = np.nanmean(paid, axis=1)
    filled = np.where(np.isnan(paid), drawn[:, None], paid)
    best = int(filled.mean(axis=0).argmax())
    players = [Player(f"best fixed arm, {names[best]}", filled[:, best], "hindsight")]
    if phases is not None:
        table = np.empty(len(paid), dtype=np.int64)
        for phase in np.unique(phases):
            table[phases == phase] = filled[phases == phase].mean(axis=0).argmax()
        players.append(Player(f"best arm of every {unit}", filled[np.arange(len(paid)), table], "hindsight"))
    players.append(Player("an arm drawn at random", drawn, "hindsight"))
    return [*players, Player("best arm of every slot", np.nanmax(paid, axis=1), "hindsight")]


def played(trace: rb.data.Trace, slots: int | None, **how: Any) -> list[Player]:
    """Let the learners, and those who are told the fitted chains, play a log."""
    replayed = rb.data.replay(trace, [*LEARNERS, *TOLD], horizon=slots, runs=5, **how)
    kinds = {one.spec: "told" if one.spec in TOLD else "learner" for one in replayed.learners}
    return [Player(one.spec, one.rewards.mean(axis=0), kinds[one.spec]) for one in replayed.learners]


def above(earned: Array, best: Array) -> tuple[float, float]:
    """Return the mean difference to the best fixed arm, and its standard error from blocks of the log."""
    difference = earned - best
    parts = np.array_split(difference, BLOCKS)
    sums = np.array([part.sum() - len(part) * difference.mean() for part in parts])
    return float(difference.mean()), math.sqrt(float((sums**2).sum()) * BLOCKS / (BLOCKS - 1)) / len(difference)


def rows_of(players: Sequence[Player]) -> list[list[Any]]:
    """Return the table of players as it is kept: name, kind, mean reward, difference to the best fixed arm, error."""
    best = next(player for player in players if player.name.startswith("best fixed arm"))
    rows = []
    for player in players:
        more, error = above(player.earned, best.earned)
        rows.append([player.name, player.kind, *(round(number, 5) for number in (player.earned.mean(), more, error))])
    return rows


def findings_of(trace: rb.data.Trace, **how: Any) -> list[str]:
    """Return why the log rejects the model, in sentences; none where it does not."""
    found = rb.data.fit(trace, **how)
    return list(found.problem.findings.findings)


def facts_of(trace: rb.data.Trace, paid: Array) -> list[str]:
    """Return what is to be known of a log beside its findings, in sentences."""
    complete = float((~np.isnan(paid)).all(axis=1).mean())
    pairs = [(i, j) for i in range(trace.n_arms) for j in range(i)]
    together = [_correlation(paid[:, i], paid[:, j]) for i, j in pairs]
    later = [_correlation(paid[1:, i], paid[:-1, i]) for i in range(trace.n_arms)]
    problem = rb.data.fit(trace, tests=False).problem
    gain = rb.evaluate(problem, rb.oracles.policy("whittle", problem), simulate=True, slots=20_000, runs=8).gain
    best = rb.oracles.best_arm(problem).gain or 0.0
    return [
        f"{len(paid)} slots with anything logged, {complete:.0%} of them with all {trace.n_arms} arms",
        f"rewards of two arms in one slot correlate by {np.mean(together):+.2f} on average, from {min(together):+.2f} "
        f"to {max(together):+.2f}; those of an arm in two slots that follow each other by {np.mean(later):+.2f}",
        f"if the fitted chains were true and independent, Whittle's index would earn {gain - best:+.3f} over the best "
        "fixed arm",
    ]


def _correlation(one: Array, other: Array) -> float:
    there = ~np.isnan(one) & ~np.isnan(other)
    return float(np.corrcoef(one[there], other[there])[0, 1])


def table(rows: Sequence[Sequence[Any]]) -> str:
    """Return a table of players for a page."""
    lines = ["| | reward a slot | over the best fixed arm |", "|---|--:|--:|"]
    heads = {
        "learner": "learners",
        "told": "told the fitted chains",
        "clock": "with a clock",
        "hindsight": "in hindsight",
    }
    kind = ""
    for name, now, mean, more, error in rows:
        if now != kind:
            lines.append(f"| *{heads[now]}* | | |")
            kind = now
        over = "" if name.startswith("best fixed arm") else f"{more:+.4f} ± {2 * error:.4f}"
        lines.append(f"| {name} | {mean:.4f} | {over} |")
    return "\n".join(lines)


def shown(rows: Sequence[Sequence[Any]]) -> str:
    """Return the same table for a terminal."""
    width = max(len(row[0]) for row in rows)
    lines = [f"{'':{width}}  reward a slot  over the best fixed arm"]
    for name, _, mean, more, error in rows:
        over = "" if name.startswith("best fixed arm") else f"{more:+.4f} ± {2 * error:.4f}"
        lines.append(f"{name:{width}}  {mean:13.4f}  {over:>23}".rstrip())
    return "\n".join(lines)


def listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences) or "Nothing was found against it."


def written(page: str, kept: Mapping[str, Any]) -> str:
    """Return a page with its marked parts made of what was kept: ``<!-- key -->`` … ``<!-- end -->``."""

    def part(mark: re.Match[str]) -> str:
        if mark[1] not in kept:
            return mark[0]
        what = kept[mark[1]]
        made = what if isinstance(what, str) else table(what) if what and isinstance(what[0], list) else listed(what)
        return f"<!-- {mark[1]} -->\n\n{made}\n\n<!-- end -->"

    return re.sub(r"<!-- ([\w-]+) -->\n.*?<!-- end -->", part, page, flags=re.DOTALL)


def keep(name: str, kept: Mapping[str, Any]) -> None:
    """Keep the results of a case, and write its page from them."""
    file, page = FOLDER / f"{name}.json", FOLDER / f"{name}.md"
    known = loaded(name) | dict(kept)
    lines = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in known.items())
    file.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    page.write_text(written(page.read_text(encoding="utf-8"), known), encoding="utf-8")
    index = FOLDER / "index.md"
    index.write_text(written(index.read_text(encoding="utf-8"), {"summary": summary()}), encoding="utf-8")


CASES = {
    ("airports", "origin-"): "three airports, by the hour",
    ("airports", "carrier-"): "six carriers, by the hour",
    ("wind", "knots-"): "wind at twelve places, by the day",
    ("wind", "relative-"): "the same, each place by its own mean",
    ("car-park", ""): "nine car parks, by the half hour",
}
"""What was kept: the case, how its keys begin, and what it is about."""


def loaded(name: str) -> dict[str, Any]:
    """Return what was kept of a case, nothing if there is none."""
    file = FOLDER / f"{name}.json"
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def summary() -> str:
    """Return what a learner, a player told the fitted chains, and a timetable earned over the best fixed arm."""
    lines = [
        "| | fixed arm | likelihood-ucb | whittle, told | the model said | timetable, in hindsight |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for (name, begin), about in CASES.items():
        kept = loaded(name)
        if f"{begin}players" not in kept:
            continue
        rows = {row[0]: row[2:] for row in kept[f"{begin}players"]}
        fixed = next(mean for who, (mean, *_) in rows.items() if who.startswith("best fixed arm"))
        timetable = next(who for who in rows if who.startswith("best arm of every") and not who.endswith("slot"))
        told = [f"{rows[who][1]:+.3f} ± {2 * rows[who][2]:.3f}" for who in ("likelihood-ucb", "whittle", timetable)]
        promise = re.search(r"would earn (\S+) over", " ".join(kept[f"{begin}facts"]))
        said = promise[1] if promise else ""
        lines.append(f"| [{about}]({name}.md) | {fixed:.3f} | {told[0]} | {told[1]} | {said} | {told[2]} |")
    return "\n".join(lines)


def draw_gains(ax: Any, when: npt.ArrayLike, players: Sequence[Player]) -> None:
    """Draw what players have earned more than the best fixed arm, summed up along the log; of hindsight a timetable."""
    best = next(player for player in players if player.name.startswith("best fixed arm"))
    for player in players:
        timetable = player.name.startswith("best arm of every") and not player.name.endswith("slot")
        if player.kind != "hindsight" or timetable:
            style = "--" if timetable else "-"
            ax.plot(when, np.cumsum(player.earned - best.earned), style, label=player.name, linewidth=1.2)
    ax.axhline(0.0, color="0.3", linewidth=0.8)
    ax.set_ylabel(f"reward above the {best.name}")
    ax.legend(fontsize="small", frameon=False)
