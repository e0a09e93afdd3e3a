"""The paper's experiments as data, what they gave, and a computed verdict on each of its claims.

report = rb.experiments.reproduce(["figure-a"], quick=True, out="out")
print(report.verdicts[0].text)
"""

from __future__ import annotations

from restless_bandits.paper.experiments.design import Design, design
from restless_bandits.paper.experiments.figures import Line, Protocol
from restless_bandits.paper.experiments.items import Item
from restless_bandits.paper.experiments.reproduction import Reproduction, reproduce
from restless_bandits.paper.experiments.verdicts import Claim, ClaimFinding, Verdict

__all__ = [
    "Claim",
    "ClaimFinding",
    "Design",
    "Item",
    "Line",
    "Protocol",
    "Reproduction",
    "Verdict",
    "design",
    "reproduce",
]
