"""The paper's mathematics as code that can be run and doubted."""

from __future__ import annotations

from restless_bandits.theory.radii import exploration_count, radius, radius_below_from

__all__ = ["exploration_count", "radius", "radius_below_from"]
