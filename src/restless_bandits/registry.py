"""Names and import paths ("homes") of learners and oracles, resolved without an import.

A home is ``module:attribute``. Three kinds of words lead to a home: a name of this package; a name that an installed
package registers in the entry-point groups ``restless_bandits.learners`` and ``restless_bandits.oracles``; and an
explicit home, ``package.module:Class``, for unregistered code. Modules of the current folder are found too, after
installed modules.

The import of a module runs its code. A home is therefore followed only if the caller trusts the text: the words of a
program or of a command line, not the words of a stored agent, a history or a store.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from restless_bandits._internal.errors import ProblemError, UntrustedModuleError, did_you_mean, shortened

PACKAGE = __name__.partition(".")[0]
MOVED = {f"{PACKAGE}.learners": f"{PACKAGE}.learning.learners"}
"""Packages whose classes stored agents may name by an earlier home."""


class Registry(MutableMapping[str, Any]):
    """A mapping of names to objects; a value of type text is a home, loaded on access.

    ``registry[name] = thing`` registers an object for the lifetime of the program.
    """

    def __init__(self, what: str, group: str, homes: Mapping[str, str]) -> None:
        self.what = what
        self.group = group
        self.homes: dict[str, Any] = dict(homes)

    def __iter__(self) -> Iterator[str]:
        return iter([*self.homes, *(name for name in plug_ins(self.group) if name not in self.homes)])

    def __len__(self) -> int:
        return len(list(iter(self)))

    def __contains__(self, name: object) -> bool:
        return name in self.homes or name in plug_ins(self.group)

    def __getitem__(self, name: str) -> Any:
        home = self.homes[name] if name in self.homes else plug_ins(self.group)[name]
        return load(home, self.what) if isinstance(home, str) else home

    def __setitem__(self, name: str, thing: Any) -> None:
        self.homes[name] = thing

    def __delitem__(self, name: str) -> None:
        del self.homes[name]

    @property
    def own(self) -> list[str]:
        """The names of this package and names registered by the program, without plug-ins."""
        return list(self.homes)

    def split(self, text: str) -> tuple[str, str]:
        """Split ``word:rest`` after its word, a name or a home: a home contains a colon itself."""
        name, _, rest = text.partition(":")
        name = name.strip()
        attribute, _, more = rest.partition(":")
        is_module = all(part.isidentifier() for part in name.split("."))
        if name not in self and is_module and attribute.strip().isidentifier():
            return f"{name}:{attribute.strip()}", more
        return name, rest

    def is_registered(self, word: str) -> bool:
        """Whether a word is a registered name, or the home of a registered name."""
        if word in self:
            return True
        things = [*self.homes.values(), *plug_ins(self.group).values()]
        return word in (
            thing if isinstance(thing, str) else home_of(thing)
            for thing in things
            if isinstance(thing, str) or hasattr(thing, "__qualname__")
        )

    def find(self, word: str, more_names: Iterable[str] = (), *, trust_modules: bool) -> Any:
        """Return the object of a name or a home; an unknown word raises.

        Without ``trust_modules`` only registered names and their homes are followed; no other module is imported.
        """
        if word in self:
            return self[word]
        if ":" in word:
            if not trust_modules and not self.is_registered(word):
                raise untrusted(self.what, word)
            return load(word, self.what)
        hint = did_you_mean(word[:60], [*self, *more_names])
        if hint.startswith("choose"):
            hint += ", or name one of your own as package.module:attribute"
        raise ProblemError(f"there is no {self.what} {shortened(word)}; {hint}")


@cache
def plug_ins(group: str) -> dict[str, str]:
    """The homes that installed packages register in a group."""
    from importlib.metadata import entry_points  # takes longer to load than all of this package's own start

    return {entry.name: entry.value.replace(" ", "") for entry in entry_points(group=group)}


def untrusted(what: str, word: str) -> UntrustedModuleError:
    """Return the refusal of a stored spec that would import a module."""
    return UntrustedModuleError(
        f"the {what} {shortened(word)} names code in a module, and stored data may name only registered learners and "
        "oracles; register it by an entry point, or allow the import with trust_modules=True or --trust-modules if you "
        "trust the writer of the data"
    )


def load(home: str, what: str) -> Any:
    """Return the object at a home; every failure is a ``ProblemError`` of one sentence."""
    module_name, _, attribute = home.partition(":")
    for old, new in MOVED.items():
        if module_name == old or module_name.startswith(f"{old}."):
            module_name = new + module_name.removeprefix(old)
    _look_here_too(module_name)
    try:
        module = importlib.import_module(module_name)
    except ProblemError:
        raise
    except Exception as error:  # the import of a module may fail in any way
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ProblemError(f"cannot import {module_name} for the {what} {home!r}: {reason}") from None
    try:
        return getattr(module, attribute)
    except AttributeError:
        place = getattr(module, "__file__", None) or "which has no file"
        known = [name for name, thing in vars(module).items() if getattr(thing, "__module__", "") == module_name]
        hint = did_you_mean(attribute, known) if known else "it defines nothing"
        raise ProblemError(f"{module_name} ({place}) has no {what} {attribute!r}; {hint}") from None


def _look_here_too(module_name: str) -> None:
    """Allow imports from the current folder, in this process and its child processes."""
    top = module_name.partition(".")[0]
    here = str(Path.cwd())
    try:
        known = top in sys.modules or find_spec(top) is not None
    except (ImportError, ValueError):
        known = False
    if not known and here not in sys.path:
        sys.path.append(here)
        importlib.invalidate_caches()


def home_of(thing: Any) -> str:
    """Return the home of a class or function."""
    return f"{thing.__module__}:{thing.__qualname__}"


def is_foreign(thing: Any) -> bool:
    """Whether a class or function is third-party: neither of this package nor of Python's library."""
    top = str(thing.__module__).partition(".")[0]
    return top != PACKAGE and top not in sys.stdlib_module_names


def is_installed(module: ModuleType) -> bool:
    """Whether a module came with an installed package, and not from a folder of the user."""
    place = Path(getattr(module, "__file__", None) or "")
    return any(place.is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def source_mark(things: Iterable[Any]) -> str:
    """Return a digest of the source of third-party classes and functions, empty without any.

    The digest covers all Python files of their packages, or the single file of a module outside of any package.
    """
    tops = sorted({str(thing.__module__).partition(".")[0] for thing in things if is_foreign(thing)})
    mark = hashlib.sha256()
    for top in tops:
        place = getattr(sys.modules.get(top), "__file__", None)
        if place is None or not Path(place).is_file():
            raise ProblemError(
                f"the source of {top} is in no file, and changes cannot be detected; put the source into a file"
            )
        path = Path(place)
        for file in sorted(path.parent.rglob("*.py")) if path.name == "__init__.py" else [path]:
            mark.update(f"{top}/{file.name}\n".encode() + file.read_bytes())
    return mark.hexdigest()[:16] if tops else ""


LEARNERS = Registry(
    "learner",
    "restless_bandits.learners",
    {
        "likelihood-ucb": "restless_bandits.learning.learners.likelihood_ucb:LikelihoodUCB",
        "restless-ucb": "restless_bandits.learning.learners.restless_ucb:RestlessUCB",
        "likelihood-dominance": "restless_bandits.learning.learners.likelihood_dominance:LikelihoodDominance",
        "colored-ucrl2": "restless_bandits.learning.learners.colored_ucrl2:ColoredUCRL2",
        "ts": "restless_bandits.learning.learners.thompson:ThompsonSampling",
        "rca": "restless_bandits.learning.learners.weak:RCA",
        "dsee": "restless_bandits.learning.learners.weak:DSEE",
        "round-robin": "restless_bandits.learning.learners.simple:RoundRobin",
        "ucb1": "restless_bandits.learning.learners.simple:UCB1",
        "bonus-posterior": "restless_bandits.learning.learners.bonus_posterior:BonusPosterior",
        "tsde": "restless_bandits.learning.learners.tsde:TSDE",
        "ucwhittle": "restless_bandits.learning.learners.ucwhittle:UCWhittle",
        "wiql": "restless_bandits.learning.learners.q_learning:WIQL",
        "wibql": "restless_bandits.learning.learners.q_learning:WIBQL",
        "certainty-equivalent": "restless_bandits.learning.learners.observed_posterior:CertaintyEquivalent",
        "random": "restless_bandits.learning.learners.simple:RandomArms",
        "informed": "restless_bandits.learning.learners.simple:Informed",
    },
)

DEFAULT = "likelihood-ucb"
"""The default learner: the least measured regret (docs/head-to-head.md)."""

DEFAULT_REACTING = "posterior"
"""The default learner of arms that react, pay at rest or have a set-up cost (docs/learners.md)."""

DEFAULT_OBSERVED_LEARNER = "bonus-posterior"
"""The default learner of observed arms (docs/head-to-head.md)."""

OBSERVED_ORACLES = ("lp-index", "id", "lp-update", "fluid-priority")
"""Oracles for arms that are all observed, and for no others."""

FINITE_ORACLES = ("fluid-priority",)
"""Oracles that plan for a known number of slots."""

DEFAULT_OBSERVED = "lp-index"
"""The default policy of a simulation of arms that are all observed."""

INFORMED = ("exact", "whittle", "myopic", "guha", "best-arm", *OBSERVED_ORACLES)
"""Oracles whose policies, with knowledge of the problem, serve as references for comparison."""

COMPARATORS = ("auto", "exact", "whittle", "myopic", "guha", "best-arm", "lp-index")
"""References for regret, besides a number."""

ALIASES = {
    "dominance-ucb": "likelihood-dominance",
    "ts-9": "ts:support=9",
    "ts-4": "ts:support=4",
    "posterior": "ts:oracle=auto,prior=continuous",
    **{name: f"informed:oracle={name}" for name in INFORMED},
}
"""Short names and their specs."""

ORACLES = Registry(
    "oracle",
    "restless_bandits.oracles",
    {
        "exact": "restless_bandits.oracles.planning:EXACT",
        "auto": "restless_bandits.oracles.auto:ORACLE",
        "whittle": "restless_bandits.oracles.whittle:ORACLE",
        "myopic": "restless_bandits.oracles.myopic:ORACLE",
        "guha": "restless_bandits.oracles.guha:ORACLE",
        "relaxation": "restless_bandits.oracles.relaxation:ORACLE",
        "best-arm": "restless_bandits.oracles.best_arm:ORACLE",
        "lp-index": "restless_bandits.oracles.observed.planners:LP_INDEX",
        "id": "restless_bandits.oracles.observed.planners:ID",
        "lp-update": "restless_bandits.oracles.observed.planners:LP_UPDATE",
        "fluid-priority": "restless_bandits.oracles.observed.finite:ORACLE",
    },
)


ENGINES = ("auto", "threads", "processes", "dask")
"""Pools that can play many runs."""


def learner_names() -> list[str]:
    """Return every word that identifies a learner without further options, with the names of installed plug-ins."""
    return [*LEARNERS, *ALIASES]
