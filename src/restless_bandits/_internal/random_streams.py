"""Randomness by coordinates: every stream of draws depends on the seed, the problem's content and the run's number.

The draws of the simulated arms, of the learner (a stream for each plan), and of feedback delays use separate streams. A
run is therefore independent of other runs, of their order, and of the number of cores.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.validation import check_int

WORLD, LEARNER, ANSWERS, NUMBERS = 0, 1, 2, 3


def _sequence(seed: int, content: str, run: int, *stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(int(content[:32] or "0", 16), run, *stream))


def world_words(seed: int, content: str, run: int) -> npt.NDArray[np.uint64]:
    """Return the state of the stream of states and rewards."""
    return _sequence(seed, content, run, WORLD).generate_state(4, np.uint64).astype(np.uint64)


def world_generator(seed: int, content: str, run: int) -> np.random.Generator:
    """Return the generator of initial states, and of steps of the numbers of arms in each state."""
    return np.random.default_rng(_sequence(seed, content, run, NUMBERS))


def answer_generator(seed: int, content: str, run: int) -> np.random.Generator:
    """Return the generator of delays and losses of a run's feedback."""
    return np.random.default_rng(_sequence(seed, content, run, ANSWERS))


def plan_generator(seed: int, content: str, run: int, plan: int) -> np.random.Generator:
    """Return the learner's generator for a plan: the generator of ``_sequence(seed, content, run, LEARNER, plan)``."""
    words = np.array([*_learner_words(seed, content, run), *_words(plan)], dtype=np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


@lru_cache(maxsize=64)
def _learner_words(seed: int, content: str, run: int) -> list[int]:
    """NumPy's words for the coordinates of all plans of a run; cached, because NumPy takes longer for them than for
    the rest.
    """
    entropy, key = _words(seed), (int(content[:32] or "0", 16), run, LEARNER)
    # A seed is padded to four words, to distinguish the seed from a shorter seed with a part of the key.
    filled = [*entropy, *[0] * (4 - len(entropy))]
    return [*filled, *(word for number in key for word in _words(number))]


def _words(number: int) -> list[int]:
    """A number in words of 32 bits, the lowest first; zero is a single word."""
    words = [number & 0xFFFFFFFF]
    while number := number >> 32:
        words.append(number & 0xFFFFFFFF)
    return words


def check_generator(seed: int, content: str, check: int) -> np.random.Generator:
    """Return the generator of a check by simulation, which has no runs: ``check`` is its number."""
    check_int("seed", seed, 0)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(content[:32], 16), check)))
