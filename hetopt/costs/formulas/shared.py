"""Formulas that plans and measured runs have in common, of numbers of any sort.

The tables of an instance give whole numbers and fractions, and get exact ones back;
predictions of measured runs give floats.
"""

from fractions import Fraction
from typing import TypeVar

Exact = TypeVar("Exact", Fraction, float)
Tokens = TypeVar("Tokens", int, float)


def ring_s(volume: Exact, members: int, latency: Exact, rate: Exact) -> Exact:
    """Return how long one pass of a ring takes that `volume` bytes go around.

    Each of the members sends n - 1 messages of an n-th of the volume: all of it is
    gathered, or summed and scattered, that way. An all-reduce is two passes. Source:
    HexiScale, Appendix A, Eq. 4, of links that are alike.
    """
    return (members - 1) * latency + volume * (members - 1) / members / rate


def in_flight(
    micro_batches: int, stages: int, stage: int, chunks: int = 1
) -> int | Fraction:
    """Return the micro-batches whose activations a stage holds when it holds most.

    One forward, one backward: min(n, P - j), j from 0. With `chunks` v of the stage's
    layers on each GPU, in Megatron's order, in parts of a v-th:
    min(n v, 2 (P - j - 1) + (v - 1) P + 1) / v. Source: arXiv 2104.04473, section 2.2.
    """
    behind = stages - stage - 1
    if chunks == 1 or stages == 1:
        return min(micro_batches, behind + 1)
    runs = 2 * behind + (chunks - 1) * stages + 1
    return Fraction(min(micro_batches * chunks, runs), chunks)


def scores(tokens: Tokens, window: Tokens, *, chunked: bool = False) -> Tokens:
    """Return twice the scores below the diagonal of a sequence of so many tokens.

    A token sees the `window` tokens before it, as far as there are any: S^2 - (S - w)^2
    of S^2; where windows are chunks that do not slide, the tokens of its own chunk.
    """
    if chunked:
        return tokens // window * window * window + (tokens % window) ** 2
    return tokens * tokens - (tokens - window) ** 2
