"""The paper's experiments as data, what they gave, and a computed verdict on each of its claims.

report = rb.experiments.reproduce(["figure-a"], quick=True, out="out")
print(report.verdicts[0].text)
"""

from __future__ import annotations

from restless_bandits.experiments.design import Design, design
from restless_bandits.experiments.figures import Line, Protocol
from restless_bandits.experiments.items import Item
from restless_bandits.experiments.reproduction import QuickReproduction, Reproduction, reproduce
from restless_bandits.experiments.verdicts import Claim, Finding, Verdict

__all__ = [
    "Claim",
    "Design",
    "Finding",
    "Item",
    "Line",
    "Protocol",
    "QuickReproduction",
    "Reproduction",
    "Verdict",
    "design",
    "reproduce",
]
