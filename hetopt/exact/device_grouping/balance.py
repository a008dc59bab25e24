"""Groupings without proof: dealt out strongest first, then improved by exchanges."""

from heapq import heapreplace

import numpy as np

from .pattern import Array, Kinds

_EXCHANGES = 400
_EFFORT = 60_000  # exchanges looked at


def balanced(kinds: Kinds, groups: int, k: int) -> list[tuple[int, ...]] | None:
    """A grouping of nearly equal ratios; None where none with enough memory came up."""
    found: list[tuple[float, list[tuple[int, ...]]]] = []
    for by in (kinds.gflops, kinds.memory_mib):
        counts = _improved(kinds, _dealt(kinds, groups, k, by), k)
        memory = counts @ np.array(kinds.memory_mib)
        if int(memory.min()) >= kinds.floor_mib:
            ratio = float(_ratios(kinds, counts, k).min())
            found.append((ratio, [tuple(row) for row in counts.tolist()]))
        if by is kinds.gflops and found:
            break  # memory does not bind
    return max(found)[1] if found else None


def _dealt(kinds: Kinds, groups: int, k: int, by: tuple[int, ...]) -> Array:
    """Largest device first, each to the group that has least for its size."""
    counts = np.zeros((groups, len(kinds.count)), dtype=np.int64)
    heap = [(0.0, 0, 0, j) for j in range(groups)]
    for i in sorted(range(len(by)), key=lambda i: -by[i]):
        for _ in range(kinds.count[i]):
            _, total, size, j = heap[0]
            counts[j, i] += 1
            total, size = total + by[i], size + 1
            heapreplace(heap, (total / (k + size - 1), total, size, j))
    return counts


def _ratios(kinds: Kinds, counts: Array, k: int) -> Array:
    strength = counts @ np.array(kinds.gflops, dtype=float)
    return strength / np.maximum(1, k + counts.sum(axis=-1) - 1)


def _improved(kinds: Kinds, counts: Array, k: int) -> Array:
    """Exchange devices with the neediest group while that helps both."""
    width = len(kinds.count)
    # Exchange (a, b): the needy group gives a and takes b; the last one is nothing.
    unit = np.vstack([np.eye(width, dtype=np.int64), np.zeros(width, dtype=np.int64)])
    change = (unit[None, :, :] - unit[:, None, :]).reshape(-1, width)
    memory = np.array(kinds.memory_mib)
    for _ in range(min(_EXCHANGES, _EFFORT // (len(counts) * len(change)))):
        missing = np.maximum(0, kinds.floor_mib - counts @ memory)
        ratios = _ratios(kinds, counts, k)
        short = bool(missing.any())
        needy = int(np.argmax(missing)) if short else int(np.argmin(ratios))
        mine, theirs = counts[needy] + change, counts[:, None, :] - change
        allowed = (mine >= 0).all(axis=-1)[None, :] & (theirs >= 0).all(axis=-1)
        allowed &= mine.any(axis=-1)[None, :] & theirs.any(axis=-1)
        allowed[needy] = False
        lack = np.maximum(0, kinds.floor_mib - mine @ memory)[None, :]
        lack = lack + np.maximum(0, kinds.floor_mib - theirs @ memory)
        if short:
            before = missing[needy] + missing
            score = np.where(allowed, (before[:, None] - lack).astype(float), 0.0)
            least = 0.5
        else:
            least = float(ratios[needy]) * (1 + 1e-12)
            both = np.minimum(_ratios(kinds, mine, k)[None], _ratios(kinds, theirs, k))
            score = np.where(allowed & (lack == 0), both, 0.0)
        other, number = np.unravel_index(int(np.argmax(score)), score.shape)
        if score[other, number] <= least:
            break
        counts[needy] += change[number]
        counts[other] -= change[number]
    return counts
