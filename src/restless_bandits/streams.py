"""Randomness by coordinates: every stream of draws depends on the seed, the problem's content and the run's number.

The draws of the world, those of the learner, one stream for each plan, and those of answers on their way never meet.
So a run is the same whatever else is run, in whatever order, on however many cores.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from restless_bandits.arrays import whole

WORLD, LEARNER, ANSWERS = 0, 1, 2


def _sequence(seed: int, content: str, run: int, *stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(int(content[:32] or "0", 16), run, *stream))


def world_words(seed: int, content: str, run: int) -> npt.NDArray[np.uint64]:
    """Return the state of the stream that draws states and rewards."""
    return _sequence(seed, content, run, WORLD).generate_state(4, np.uint64).astype(np.uint64)


def answer_generator(seed: int, content: str, run: int) -> np.random.Generator:
    """Return the generator of what happens to the answers of a run on their way."""
    return np.random.default_rng(_sequence(seed, content, run, ANSWERS))


def plan_generator(seed: int, content: str, run: int, plan: int) -> np.random.Generator:
    """Return the learner's generator for one of its plans: that of ``_sequence(seed, content, run, LEARNER, plan)``."""
    words = np.array([*_learner_words(seed, content, run), *_words(plan)], dtype=np.uint32)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words)))


@lru_cache(maxsize=64)
def _learner_words(seed: int, content: str, run: int) -> list[int]:
    """What NumPy makes of the coordinates of all plans of a run; kept, as that takes it longer than the rest."""
    entropy, key = _words(seed), (int(content[:32] or "0", 16), run, LEARNER)
    # A seed is filled up to four words, so that it cannot be taken for one with a part of the key.
    filled = [*entropy, *[0] * (4 - len(entropy))]
    return [*filled, *(word for number in key for word in _words(number))]


def _words(number: int) -> list[int]:
    """A number in words of 32 bits, the lowest first; zero is one word."""
    words = [number & 0xFFFFFFFF]
    while number := number >> 32:
        words.append(number & 0xFFFFFFFF)
    return words


def check_generator(seed: int, content: str, check: int) -> np.random.Generator:
    """Return the generator of a check by simulation, which has no runs: ``check`` is its number."""
    whole("seed", seed, 0)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(int(content[:32], 16), check)))
