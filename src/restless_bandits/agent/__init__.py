"""Agents: learners that are asked for decisions and told observations, slot by slot."""

from __future__ import annotations

from restless_bandits.agent.agent import Agent as Agent
from restless_bandits.agent.feedback import Decision as Decision
from restless_bandits.agent.observed import ObservedAgent as ObservedAgent
