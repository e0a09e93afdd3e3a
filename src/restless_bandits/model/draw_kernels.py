"""Compiled draws: uniform numbers, and beta variables for random rewards.

Draws come from xoshiro256++ (Blackman, Vigna 2021), with four words as the stream's state. A draw takes a few
instructions, where a call into a bit generator would cost more than the rest of the slot.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from restless_bandits._internal.compiling import helper, njit

Word = np.uint64
Words = npt.NDArray[np.uint64]

PAYS_ONE, PAYS_MEAN, PAYS_END, PAYS_BETA = range(4)
"""Kinds of reward draws: 1 or 0; always the mean; one of the two ends of a range; a beta variable on a range."""


@helper
def draw(s0: Word, s1: Word, s2: Word, s3: Word) -> tuple[float, Word, Word, Word, Word]:
    """Draw a double in [0, 1) and step the stream, whose words stay in registers between draws."""
    mixed = s0 + s3
    result = ((mixed << np.uint64(23)) | (mixed >> np.uint64(41))) + s0
    shifted = s1 << np.uint64(17)
    s2 ^= s0
    s3 ^= s1
    s1 ^= s2
    s0 ^= s3
    s2 ^= shifted
    s3 = (s3 << np.uint64(45)) | (s3 >> np.uint64(19))
    return np.int64(result >> np.uint64(11)) * (1.0 / 9007199254740992.0), s0, s1, s2, s3


@helper
def _mixed(word: Word) -> tuple[float, Word]:
    """Draw a double in (0, 1] from a stream with a one-word state (SplitMix64: Steele, Lea, Flood 2014), and step
    the stream.
    """
    word += np.uint64(0x9E3779B97F4A7C15)
    mixed = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return (np.int64(mixed >> np.uint64(11)) + 1.0) * (1.0 / 9007199254740992.0), word


@njit
def mark_uniformly(word: Word, plays: int, marked: npt.NDArray[np.bool_]) -> None:
    """Mark so many different arms drawn uniformly, from a stream with a one-word state (Floyd's sampling)."""
    marked[:] = False
    for last in range(len(marked) - plays, len(marked)):
        u, word = _mixed(word)
        arm = min(int(u * (last + 1)), last)
        marked[last if marked[arm] else arm] = True


@helper
def _log_gamma_variable(shape: float, word: Word) -> tuple[float, Word]:
    """Draw the logarithm of a gamma variable: Marsaglia, Tsang (2000), for shape + 1, times u^(1/shape)."""
    d = shape + 2.0 / 3.0
    c = 1.0 / np.sqrt(9.0 * d)
    while True:
        u, word = _mixed(word)
        angle, word = _mixed(word)
        x = np.sqrt(-2.0 * np.log(u)) * np.cos(2.0 * np.pi * angle)
        v = (1.0 + c * x) ** 3
        u, word = _mixed(word)
        if v > 0.0 and np.log(u) < 0.5 * x * x + d * (1.0 - v + np.log(v)):
            break
    u, word = _mixed(word)
    return np.log(d * v) + np.log(u) / shape, word


@njit
def beta_variable(u: float, first: float, second: float) -> float:
    """Return a beta variable determined by a uniform draw, the seed of a separate stream."""
    word = np.uint64(u * 9007199254740992.0)
    one, word = _log_gamma_variable(first, word)
    other, word = _log_gamma_variable(second, word)
    return float(1.0 / (1.0 + np.exp(other - one)))
