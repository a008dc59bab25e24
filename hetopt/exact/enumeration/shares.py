"""Micro-batches of unequal sizes that make up the batch exactly."""

from functools import lru_cache


@lru_cache(maxsize=100_000)
def shares(
    batch: int, sizes: tuple[int, ...], most: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Return 1 to `most` micro-batches of each size that make up the batch, or None."""
    if min(most) < 1:
        return None
    # Bit s of reached[i]: the first i can do s samples.
    reached = [1]
    for size, top in zip(sizes, most, strict=True):
        before, sums = reached[-1], 0
        for n in range(1, min(top, batch // size) + 1):
            sums |= before << (n * size)
        reached.append(sums & ((1 << batch + 1) - 1))
    if not reached[-1] >> batch & 1:
        return None
    numbers, rest = [], batch
    for i in range(len(sizes) - 1, -1, -1):
        n = next(
            n
            for n in range(min(most[i], rest // sizes[i]), 0, -1)
            if reached[i] >> (rest - n * sizes[i]) & 1
        )
        numbers.append(n)
        rest -= n * sizes[i]
    return tuple(reversed(numbers))
