"""``restless bench``: what it prints."""

from __future__ import annotations

import dataclasses

from restless_bandits.cli import output
from restless_bandits.simulation.bench import bench


def run(as_json: bool) -> None:
    """Measure this machine and print it."""
    found = bench()
    if as_json:
        output.emit(dataclasses.asdict(found))
        return
    table = output.new_table("one simulated slot, all recorded", "ns", "draws")
    for name, value in found.slot_ns.items():
        table.add_row(name, f"{value:.1f}", f"{found.ratio[name]:.1f}")
    output.show(
        table,
        f"A draw, one Generator.random() of PCG64 in a compiled loop, takes {found.draw_ns:.2f} ns here.",
        f"The same loop in plain Python with NumPy takes {found.python_loop_ratio:.0f} times as long (2 arms).",
    )
