"""Numbers in sentences."""

from collections.abc import Sequence


def counted(count: int, noun: str) -> str:
    """Return a number of things: `1 sample`, `2 samples`."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def memory(mib: int) -> str:
    """Return MiB as a person would say them: as GiB where there are many."""
    return f"{mib / 1024:,.1f} GiB" if abs(mib) >= 1024 else f"{mib} MiB"


def spans(numbers: Sequence[int]) -> str:
    """Return sorted numbers with runs as such: `0–2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = (f"{run[0]}–{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)
    return ", ".join(texts)
