"""The rates of a link as a file gives them, one direction and the other."""

#: GB/s, latency in us, GB/s back; None where both directions are alike.
Rate = tuple[float, float, float | None]


def slower(rate: Rate) -> float:
    """GB/s of the slower direction."""
    there, _, back = rate
    return there if back is None else min(there, back)
