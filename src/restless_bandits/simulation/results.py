"""The result of a simulation: labelled numbers, three regrets, tables.

Axes are (learner, run, checkpoint). Regret is ``ratio · t · gain − Σ reward`` against the gain of the comparator:
``realised`` takes the received rewards, ``expected`` their means given the true belief, and ``gap`` adds up the
shortfall of each choice from the best choice by the exact solution. All three have the same mean, up to a bounded start
and end term, and each is less noisy than the kind before. ``gap`` exists only if the comparator is the optimum, the
exact solution is available, and the ratio is 1.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from restless_bandits._internal.errors import ProblemError, check_known, harmless
from restless_bandits._internal.files import read_archive, save_file
from restless_bandits._internal.html_tables import html_table
from restless_bandits._internal.validation import Array, IntArray, check_int, is_number, positive, probability
from restless_bandits.model.findings import NO_FINDINGS, Findings
from restless_bandits.model.rewards import ZERO_TO_ONE, Range, checked_range, outside
from restless_bandits.simulation.comparator import LARGEST_GAIN, Comparator
from restless_bandits.simulation.engine import EXPECTED, GAP, REALISED

REGRET_KINDS = ("realised", "expected", "gap")
FORMAT = "restless-bandits simulation result, format 1"
LABELS = ("problem", "content", "arms", "learners", "horizon", "seed", "ratio", "priced")
"""The fields of a result stored under their own names, besides its arrays and its comparator."""
LARGEST_RATIO = 1e9
REFERENCE, BASELINE = "whittle", "random"
"""The players whose rewards give shares and lifts, where both are among the learners of a result."""
OUTCOME_FIELDS = ("at", "pulls", "seconds")
TRACED = ("arms", "states", "rewards")


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of some runs of a learner; the first axis of all arrays is the run."""

    at: Array
    """Realised reward, expected reward and gap, summed up to each checkpoint: (run, checkpoint, 3)."""
    pulls: IntArray
    seconds: Array
    plan_lengths: tuple[IntArray, ...]

    @property
    def runs(self) -> int:
        return len(self.at)

    def arrays(self) -> dict[str, Any]:
        """Return the outcomes as plain arrays, plans concatenated."""
        return {
            **{name: getattr(self, name) for name in OUTCOME_FIELDS},
            "plans": np.array([len(lengths) for lengths in self.plan_lengths], dtype=np.int64),
            "plan_lengths": np.concatenate([np.zeros(0, dtype=np.int64), *self.plan_lengths]),
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Outcomes:
        lengths = np.split(arrays["plan_lengths"], np.cumsum(arrays["plans"])[:-1])
        return cls(**{name: arrays[name] for name in OUTCOME_FIELDS}, plan_lengths=tuple(lengths))

    def check(self, checkpoints: IntArray, n_arms: int, reward_range: Range, slot_range: Range | None) -> None:
        """Raise ``ValueError`` for arrays that no runs produce, given checkpoints and the number of columns of pulls.

        ``reward_range`` is that of an arm, and ``slot_range`` that of a slot, if given: see ``Problem.slot_range``.
        """
        runs, horizon = len(self.plan_lengths), int(checkpoints[-1])
        shapes = {"at": (runs, len(checkpoints), 3), "pulls": (runs, n_arms), "seconds": (runs,)}
        for name, shape in shapes.items():
            column, kind = getattr(self, name), np.int64 if name == "pulls" else np.float64
            # Far enough below infinity for finite squares.
            if column.shape != shape or column.dtype != kind or not (np.abs(column) < 1e100).all():
                raise ValueError(f"{name} are no {shape} numbers")
        plays = self.pulls.sum(axis=1) / horizon
        whole_runs = all(
            one.dtype == np.int64 and (one > 0).all() and one.sum() == horizon for one in self.plan_lengths
        )
        # Where arms are paid at rest, fewer arms may be pulled.
        uneven = slot_range is None and ((plays % 1).any() or np.ptp(plays) > 0)
        if not whole_runs or self.pulls.min() < 0 or (self.seconds < 0).any() or uneven:
            raise ValueError("pulls or plans do not add up to the horizon")
        # Rewards lie within their range; expected rewards are rounded.
        earned = self.at[:, :, :GAP] / checkpoints[:, None]
        low, high = (plays[0] * end for end in reward_range) if slot_range is None else slot_range
        off = 1e-9 * max(abs(low), abs(high))
        if not ((earned >= low - off) & (earned <= high + off)).all():
            raise ValueError("rewards are more than can be earned")

    def part(self, run: int) -> Outcomes:
        return Outcomes(**{name: column[run : run + 1] for name, column in vars(self).items()})

    @classmethod
    def stack(cls, parts: Sequence[Outcomes]) -> Outcomes:
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in parts]) for name in OUTCOME_FIELDS
        }
        return cls(**columns, plan_lengths=tuple(lengths for part in parts for lengths in part.plan_lengths))


@dataclass(frozen=True)
class Trajectories:
    """Every slot of every run of a learner: arrays (run, slot, play)."""

    arms: IntArray
    states: IntArray
    rewards: Array


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Many runs of several learners on a problem."""

    problem: str
    """The problem's name."""
    content: str
    """The problem's content hash."""
    arms: tuple[str, ...]
    """The columns of ``pulls``: arms, or kinds where all states are observed, or ``all arms`` of very many kinds."""
    learners: tuple[str, ...]
    """The learners' specs."""
    horizon: int
    seed: int
    checkpoints: IntArray
    comparator: Comparator
    ratio: float
    priced: bool
    """Whether gaps were recorded."""
    outcomes: tuple[Outcomes, ...]
    traces: Mapping[str, Trajectories] = field(default_factory=dict)
    findings: Findings = NO_FINDINGS
    """Findings of the fit of the problem to a log."""
    lost: float = 0.0
    """The probability of lost feedback."""
    late: int = 0
    """The largest delay of feedback in slots."""
    reward_range: Range = ZERO_TO_ONE
    """The smallest range that contains the rewards of all arms."""
    slot_range: Range | None = None
    """The least and the greatest reward of a slot where arms are paid at rest or pulls cost: ``Problem.slot_range``."""

    in_costs: bool = False
    """Whether the problem was stated by costs, which outputs then show: the rewards here are negative costs."""

    @property
    def remark(self) -> str | None:
        """The remark on runs in a model rejected by its own log."""
        return self.findings.remark("simulated in")

    @property
    def how_answered(self) -> str:
        """The addition to a title for lost or delayed feedback."""
        lost = f", {100 * self.lost:g} % of answers lost" if self.lost else ""
        return lost + (f", answers up to {self.late} slots late" if self.late else "")

    @property
    def runs(self) -> int:
        return self.outcomes[0].runs

    @property
    def realised_reward(self) -> Array:
        """Sums of the rewards received: (learner, run, checkpoint)."""
        return self._account(REALISED)

    @property
    def expected_reward(self) -> Array:
        """Sums of the rewards' means given the true belief: (learner, run, checkpoint)."""
        return self._account(EXPECTED)

    @property
    def gap(self) -> Array | None:
        """Sums of the gaps to the best choice: (learner, run, checkpoint); None for a problem that is too large."""
        return self._account(GAP) if self.priced else None

    @property
    def pulls(self) -> IntArray:
        """How often each arm of ``arms`` was pulled: (learner, run, arm)."""
        return np.stack([one.pulls for one in self.outcomes])

    @property
    def seconds(self) -> Array:
        """Seconds of each run: (learner, run)."""
        return np.stack([one.seconds for one in self.outcomes])

    @property
    def plan_lengths(self) -> Mapping[str, tuple[IntArray, ...]]:
        """The lengths of all plans, for each learner a tuple over runs."""
        return {spec: one.plan_lengths for spec, one in zip(self.learners, self.outcomes, strict=True)}

    def _account(self, which: int) -> Array:
        return np.stack([one.at[:, :, which] for one in self.outcomes])

    def number(self, learner: str) -> int:
        """Return the position of a learner."""
        check_known(learner, self.learners, "the result has no learner")
        return self.learners.index(learner)

    @property
    def kinds(self) -> tuple[str, ...]:
        """The available kinds of regret, the noisiest first."""
        return REGRET_KINDS[:GAP] if self._why_no_gap() else REGRET_KINDS

    def regret(self, kind: str | None = None, *, learner: str | None = None, against: str = "gain") -> Array:
        """Return regrets, by default of the best available kind: (learner, run, checkpoint), or of a single learner.

        ``against`` is ``gain``, or ``lower`` or ``upper`` for an end of the comparator's bracket.
        """
        kind = self.kinds[-1] if kind is None else kind
        check_known(kind, REGRET_KINDS, "there is no regret of kind")
        if kind not in self.kinds:
            raise ProblemError(f"there is no gap regret here: {self._why_no_gap()}; ask for expected")
        gain = self.comparator.against(against)
        if kind == "gap":
            # The gaps are measured from the optimum; the ends of its bracket differ from the optimum by a known rate.
            found = self._account(GAP) + self.checkpoints * (gain - self.comparator.gain)
        elif self.comparator.pieces:
            found = self.ratio * self.comparator.earned(self.checkpoints, against) - self._account(
                REGRET_KINDS.index(kind)
            )
        else:
            found = self.ratio * gain * self.checkpoints - self._account(REGRET_KINDS.index(kind))
        return found if learner is None else found[self.number(learner)]

    def share(self, reference: str = REFERENCE) -> Array:
        """Return the mean reward as a share of that of a reference among the learners: (learner, checkpoint).

        All learners of a run meet the same draws of arms, so much of the randomness cancels.
        """
        means = self._mean_rewards()
        return np.asarray(means / means[self.number(reference)])

    def lift(self, reference: str = REFERENCE, baseline: str = BASELINE) -> Array:
        """Return the mean reward above a baseline as a share of what the reference earns above the baseline.

        Where resting pays too, a baseline of random pulls earns most of the reward, and shares hide differences.
        """
        means = self._mean_rewards()
        least, best = means[self.number(baseline)], means[self.number(reference)]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray((means - least) / (best - least))

    def _mean_rewards(self) -> Array:
        return np.asarray(self.realised_reward.mean(axis=1))

    def _why_no_gap(self) -> str:
        if self.comparator.pieces:
            return "the problem changes, and beliefs of arms not observed since have no gap"
        if not self.priced:
            return "the problem is too large to price every choice"
        if not self.comparator.optimal:
            return f"the comparator, {self.comparator.kind}, is not the optimum"
        return "" if self.ratio == 1.0 else f"it is defined for ratio 1, not {self.ratio:g}"

    def summary(self, learner: str) -> dict[str, Any]:
        """Return means and spreads of a learner, lists along checkpoints; with a single run spreads are NaN.

        ``seconds`` is the sum over runs, and ``slots_per_second`` the speed of a single core.
        """
        one = self.outcomes[self.number(learner)]
        kind = self.kinds[-1]
        best = self.regret(kind, learner=learner)
        seconds = float(one.seconds.sum())
        found: dict[str, Any] = {
            "spec": learner,
            "checkpoints": self.checkpoints,
            "regret_kind": kind,
            "regret_mean": best.mean(axis=0),
            "regret_stderr": _stderr(best),
            "regret_sd": _sd(best),
            "regret_max": best.max(axis=0),
        }
        for noisy in ("realised", "expected"):
            regret = self.regret(noisy, learner=learner)
            found |= {f"{noisy}_regret_mean": regret.mean(axis=0), f"{noisy}_regret_stderr": _stderr(regret)}
        found |= {
            "reward_mean": one.at[:, :, REALISED].mean(axis=0) / self.checkpoints,
            "seconds": seconds,
            "slots_per_second": self.runs * self.horizon / seconds if seconds > 0 else math.inf,
            "pulls_share": one.pulls.mean(axis=0) / self.horizon,
            "plans_mean": float(np.mean([len(lengths) for lengths in one.plan_lengths])),
        }
        if REFERENCE in self.learners:
            found["share"] = self.share()[self.number(learner)]
            if BASELINE in self.learners:
                found["lift"] = self.lift()[self.number(learner)]
        found |= self._ratios(one)
        for end in self.comparator.ends:
            against = self.regret(kind, learner=learner, against=end)
            found |= {
                f"regret_against_{end}_mean": against.mean(axis=0),
                f"regret_against_{end}_max": against.max(axis=0),
            }
        return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in found.items()}

    def _ratios(self, one: Outcomes) -> dict[str, Any]:
        """The expected reward a slot, and its ratios to the upper end of a bracket and to the simulated policy.

        Ratios are None where rewards may have both signs. Of costs, a ratio above 1 is a cost above the other.
        """
        if not self.comparator.ends:
            return {}
        earned = one.at[:, :, EXPECTED].mean(axis=0)
        low, high = self.reward_range if self.slot_range is None else self.slot_range
        found: dict[str, Any] = {"expected_reward_mean": earned / self.checkpoints}
        compared: dict[str, Array | None] = {
            "share_of_upper": self.comparator.earned(self.checkpoints, "upper"),
            "share_of_policy": None,
        }
        if self.comparator.policy_gain is not None:
            compared["share_of_policy"] = np.asarray(self.comparator.policy_gain * self.checkpoints)
        for name, total in compared.items():
            found[name] = None
            if total is not None and low * high >= 0 and (total != 0).all():
                found[name] = earned / total
        return found

    @property
    def reward_head(self) -> str:
        """The head of a column of rewards, or of costs."""
        return "cost a slot" if self.in_costs else "reward a slot"

    def shown(self, reward: float) -> float:
        """Return a reward as outputs show it: as a cost for a problem stated by costs."""
        return 0.0 - reward if self.in_costs else reward

    @property
    def bracket_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The heads and rows of a table against a bracket: the reward a slot, its shares, regret to the upper end."""
        heads = ["learner", self.reward_head, "of bound"]
        names = ["share_of_upper", "share_of_policy"] if self.comparator.policy else ["share_of_upper"]
        heads += [f"of {self.comparator.policy}"] if self.comparator.policy else []
        if {REFERENCE, BASELINE} <= set(self.learners):
            names, heads = [*names, "lift"], [*heads, "lift"]
        heads += ["regret, at most", "worst"]
        rows = []
        for one in self.summaries():
            error = "" if self.runs == 1 else f" ± {one['regret_stderr'][-1]:.2g}"
            shares = ("–" if one[name] is None else f"{one[name][-1]:.1%}" for name in names)
            reward = f"{self.shown(one['expected_reward_mean'][-1]):.6g}"
            regret = f"{one['regret_mean'][-1]:.5g}{error}"
            rows.append((one["spec"], reward, *shares, regret, f"{one['regret_max'][-1]:.5g}"))
        return tuple(heads), rows

    @property
    def comparator_lines(self) -> list[str]:
        """Sentences that name the comparator, its accuracy and its pieces."""
        pieces = self.comparator.pieces
        more = [f"  from slot {first} on {self.shown(one.gain):.9g} ({one.kind})" for first, one in pieces]
        return [*(self._bracket_lines() if self.comparator.ends else [self._gain_line()]), *more]

    def _bracket_lines(self) -> list[str]:
        against, factor = self.comparator, self._factor
        low, high = sorted(map(self.shown, (against.lower, against.upper)))
        optimum, far, near = ("least cost", "lower", "upper") if self.in_costs else ("μ*", "upper", "lower")
        found = [
            f"{self.kinds[-1]} regret against {factor}the {far} end of a bracket of the optimum:",
            f"  {low:.9g} ≤ {optimum} ≤ {high:.9g}",
        ]
        if against.policy_gain is not None:
            gain = self.shown(against.policy_gain)
            verb = "costs" if self.in_costs else "earns"
            found.append(f"  {against.policy} {verb} {gain:.6g} ± {against.stderr:.2g} a slot, simulated")
        if against.lower_confidence is not None and against.proved_lower is not None:
            proved = self.shown(against.proved_lower)
            found.append(f"  {near} end: simulated, {against.lower_confidence:.1%} confidence; proved: {proved:.6g}")
        return found

    @property
    def _factor(self) -> str:
        return "" if self.ratio == 1.0 else f"{self.ratio:g} times "

    def _gain_line(self) -> str:
        against, factor, gain = self.comparator, self._factor, self.shown(self.comparator.gain)
        kinds = {
            "certified": "the certified optimum (ships with the package)",
            "exact": "the optimum, solved exactly",
            "given": "the gain that was given",
        }
        named = kinds.get(against.kind, f"the gain of {against.kind}")
        named += ", the mean over the pieces of the problem" if against.pieces else ""
        if against.stderr:
            return f"regret against {factor}{gain:.9g} ± {against.stderr:.2g}, {named}, simulated"
        width = against.upper - against.lower
        known = f", known to {width:.1g}" if width > 0 else ""
        return f"regret against {factor}{gain:.12g}, {named}{known}"

    def summaries(self) -> list[dict[str, Any]]:
        """Return the summaries of all learners."""
        return [self.summary(learner) for learner in self.learners]

    def as_dict(self) -> dict[str, Any]:
        """Return the output of ``restless simulate --json``."""
        return {
            **{name: getattr(self, name) for name in ("problem", "horizon", "runs", "seed", "lost", "late")},
            "in_costs": self.in_costs,
            "comparator": self.comparator.as_dict(),
            "ratio": self.ratio,
            "learners": self.summaries(),
            "fit": self.findings.as_dict(),
        }

    def columns(self) -> Iterator[tuple[str, Array]]:
        """Yield the names and the values, by learner, run and checkpoint, of the rewards and regrets."""
        yield "realised_reward", self.realised_reward
        yield "expected_reward", self.expected_reward
        for kind in self.kinds:
            yield f"{kind}_regret", self.regret(kind)
        yield "regret", self.regret()
        for end in self.comparator.ends:
            yield f"regret_against_{end}", self.regret(against=end)

    def to_pandas(self) -> Any:
        """Return a long table, a row for each learner, run and checkpoint."""
        pandas = _optional("pandas", "to_pandas")
        index = pandas.MultiIndex.from_product(
            [list(self.learners), range(self.runs), self.checkpoints], names=["learner", "run", "checkpoint"]
        )
        table = {name: values.reshape(-1) for name, values in self.columns()}
        return pandas.DataFrame(table, index=index).reset_index()

    def to_xarray(self) -> Any:
        """Return a dataset with the axes learner, run, checkpoint and arm."""
        xarray = _optional("xarray", "to_xarray")
        axes = ("learner", "run", "checkpoint")
        variables: dict[str, Any] = {name: (axes, values) for name, values in self.columns()}
        variables["pulls"] = (("learner", "run", "arm"), self.pulls)
        variables["seconds"] = (("learner", "run"), self.seconds)
        labels = {
            "learner": list(self.learners),
            "run": np.arange(self.runs),
            "checkpoint": self.checkpoints,
            "arm": list(self.arms),
        }
        compared = self.comparator.as_dict()
        attributes = {
            **{name: getattr(self, name) for name in ("problem", "horizon", "seed", "ratio", "lost", "late")},
            "regret_kind": self.kinds[-1],
            # Attributes are single values: pieces are given by their slots and gains.
            **{f"comparator_{key}": value for key, value in compared.items() if key != "pieces" and value is not None},
            "changes": [first for first, _ in self.comparator.pieces[1:]],
        }
        return xarray.Dataset(variables, coords=labels, attrs=attributes)

    def save(self, path: str | Path) -> None:
        """Write the result with traces to an .npz file, atomically and without pickle."""
        label = {name: getattr(self, name) for name in LABELS}
        label |= {"format": FORMAT, "comparator": self.comparator.as_dict(), "traced": list(self.traces)}
        label |= {
            "fit": self.findings.as_dict(),
            "reward_range": self.reward_range,
            "slot_range": self.slot_range,
            "lost": self.lost,
            "late": self.late,
            "in_costs": self.in_costs,
        }
        arrays: dict[str, Any] = {"label": np.array(json.dumps(label)), "checkpoints": self.checkpoints}
        for n, one in enumerate(self.outcomes):
            arrays |= {f"{n}_{key}": value for key, value in one.arrays().items()}
        for spec, trace in self.traces.items():
            n = self.number(spec)
            arrays |= {f"{n}_trace_{key}": getattr(trace, key) for key in TRACED}
        save_file(path, lambda file: np.savez_compressed(file, allow_pickle=False, **arrays))

    @classmethod
    def load(cls, path: str | Path) -> SimulationResult:
        """Return the result of a file that ``save`` wrote."""
        try:
            arrays = read_archive(path)
            label = json.loads(str(arrays["label"]))
            if label["format"] != FORMAT:
                raise KeyError("format")
            return cls._restored(label, arrays)
        except FileNotFoundError:
            raise ProblemError(f"cannot read {path}: there is no such file") from None
        except (OSError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
            raise ProblemError(f"{path} is not a stored simulation result; give a file that save() wrote") from None

    @classmethod
    def _restored(cls, label: dict[str, Any], arrays: dict[str, Any]) -> SimulationResult:
        """The result of stored data, with every field validated."""
        # JSON lists become tuples.
        stored: dict[str, Any] = {name: label[name] for name in LABELS}
        stored |= {name: tuple(label[name]) for name in ("arms", "learners")}
        own: dict[str, dict[str, Any]] = {spec: {} for spec in label["learners"]}
        for n, parts in enumerate(own.values()):
            head = f"{n}_"
            parts |= {key.removeprefix(head): value for key, value in arrays.items() if key.startswith(head)}
        found = cls(
            **stored,
            checkpoints=arrays["checkpoints"],
            comparator=Comparator.from_dict(label["comparator"]),
            outcomes=tuple(Outcomes.from_arrays(parts) for parts in own.values()),
            findings=Findings(**label.get("fit", {})),
            lost=label.get("lost", 0.0),  # Results of earlier versions have neither.
            late=label.get("late", 0),
            in_costs=label.get("in_costs") is True,
            # Files of earlier versions have none.
            reward_range=checked_range("reward_range", label.get("reward_range", ZERO_TO_ONE)),
            slot_range=checked_range("slot_range", ends) if (ends := label.get("slot_range")) else None,
            traces={spec: Trajectories(*(own[spec][f"trace_{key}"] for key in TRACED)) for spec in label["traced"]},
        )
        found._check()
        return found

    def _check(self) -> None:
        """Raise ``ValueError`` for inconsistent numbers and words."""
        check_int("seed", self.seed, 0)
        positive("ratio", self.ratio, LARGEST_RATIO)
        probability("lost", self.lost)
        check_int("late", self.late, 0)
        words = (self.problem, self.content, self.comparator.kind, self.comparator.policy, *self.arms, *self.learners)
        firsts = [first for first, _ in self.comparator.pieces]
        against = (self.comparator, *(one for _, one in self.comparator.pieces))
        ends = [end for one in against for end in (one.lower, one.gain, one.upper, one.stderr)]
        limits = (self.comparator.policy_gain, self.comparator.proved_lower, self.comparator.lower_confidence)
        ends += [end for end in limits if end is not None]
        marks = self.checkpoints
        if not (
            all(isinstance(word, str) for word in words)
            and self.arms
            and self.learners
            and len(set(self.learners)) == len(self.learners) == len(self.outcomes)
            and isinstance(self.priced, bool)
            and all(is_number(end) and abs(end) <= LARGEST_GAIN for end in ends)
            and firsts == sorted(set(firsts))
            and firsts[:1] in ([], [1])
            and marks.ndim == 1
            and marks.dtype == np.int64
            and marks[0] > 0
            and (np.diff(marks) > 0).all()
            and marks[-1] == check_int("horizon", self.horizon)
        ):
            raise ValueError("the label is not that of a result")
        for one in self.outcomes:
            one.check(marks, len(self.arms), self.reward_range, self.slot_range)
            if one.runs != self.runs:
                raise ValueError("learners have played different numbers of runs")
        plays = int(self.outcomes[0].pulls[0].sum()) // self.horizon
        for trace in self.traces.values():
            columns = (trace.arms, trace.states, trace.rewards)
            if any(column.shape != (self.runs, self.horizon, plays) for column in columns):
                raise ValueError("traces are not of the runs")
            if not (trace.arms.dtype == trace.states.dtype == np.int64 and trace.rewards.dtype == np.float64):
                raise ValueError("traces are no numbers of arms and states")
            if trace.arms.min() < 0 or trace.arms.max() >= len(self.arms) or trace.states.min() < 0:
                raise ValueError("traces name unknown arms")
            if outside(trace.rewards, self.reward_range).any():
                raise ValueError("traces hold invalid rewards")

    def __repr__(self) -> str:
        kind = self.kinds[-1]
        head = f"<SimulationResult: {self.problem or 'problem'}, T = {self.horizon}, {self.runs} runs, seed {self.seed}"
        head += self.how_answered
        against = self.comparator
        if against.ends:
            heads, rows = self.bracket_table
            widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
            table = ["  ".join(f"{c:<{w}}" for c, w in zip(row, widths, strict=True)) for row in (heads, *rows)]
            lines = [head, *(f"  {line.rstrip()}" for line in (*table, *self.comparator_lines))]
            return "\n".join(map(harmless, lines + ([f"  {self.remark}"] if self.remark else []))) + ">"
        lines = [f"{head}; {kind} regret against {against.kind} {self.shown(against.gain):.12g}"]
        width = max(len(spec) for spec in self.learners)
        for spec, values in zip(self.learners, self.regret()[:, :, -1], strict=True):
            error = "" if self.runs == 1 else f" ± {_stderr(values):.3g}"
            lines.append(f"  {spec:<{width}}  {values.mean():.6g}{error}  worst {values.max():.6g}")
        return "\n".join(map(harmless, lines + ([f"  {self.remark}"] if self.remark else []))) + ">"

    def _repr_html_(self) -> str:
        played = f"T = {self.horizon}, {self.runs} run{'s' if self.runs > 1 else ''}, seed {self.seed}"
        title = f"{self.problem or 'problem'}, {played}{self.how_answered}"
        if self.comparator.ends:
            said = (" ".join(self.comparator_lines[:2]), *self.comparator_lines[2:], self.remark or "")
            note = "; ".join(line.strip() for line in said if line)
            return html_table(title, *self.bracket_table, note)
        rows = [
            (
                one["spec"],
                f"{self.shown(one['reward_mean'][-1]):.6g}",
                f"{one['regret_mean'][-1]:.6g}" + ("" if self.runs == 1 else f" ± {one['regret_stderr'][-1]:.2g}"),
                f"{one['regret_max'][-1]:.6g}",
            )
            for one in self.summaries()
        ]
        note = f"{self.kinds[-1]} regret against {self.comparator.kind} {self.shown(self.comparator.gain):.9g}"
        note += f"; {self.remark}" if self.remark else ""
        return html_table(title, ("learner", self.reward_head, "regret", "worst run"), rows, note)


def _sd(values: Array) -> Array:
    """The standard deviation over runs; NaN for a single run."""
    if len(values) < 2:
        return np.full(values.shape[1:], np.nan)
    spread: Array = values.std(axis=0, ddof=1)
    return spread


def _stderr(values: Array) -> Array:
    return _sd(values) / math.sqrt(len(values))


def _optional(module: str, method: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ProblemError(f"{method} needs {module}, which is not installed; pip install {module}") from None
