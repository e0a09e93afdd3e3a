"""``restless`` with a small design: two learners, short horizons. ``python small.py reproduce figure-a …``."""

from dataclasses import replace

from restless_bandits.cli import main
from restless_bandits.experiments import reproduction
from restless_bandits.experiments.design import design
from restless_bandits.experiments.figures import RegretFigure

HORIZONS = {"published": (1000, 2000, 4000, 6000, 8000, 10_000), "fair": (1000, 2000, 5000, 10_000)}
LABELS = ("Restless-UCB", "TS-9")


def small_design(wanted=(), *, quick=False):
    """The paper's design with two of its lines, and with horizons that take a moment."""
    plan = design(wanted, quick=quick)
    protocols = tuple(
        replace(
            protocol,
            horizons=HORIZONS[protocol.name],
            lines=tuple(line for line in protocol.lines if line.label in LABELS),
        )
        for protocol in plan.protocols
    )
    items = [replace(item, protocols=protocols) if isinstance(item, RegretFigure) else item for item in plan.items]
    return replace(plan, protocols=protocols, items=tuple(items))


if __name__ == "__main__":
    reproduction.design = small_design
    main()
