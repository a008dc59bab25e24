"""Random trials of what hetopt states, for as long as one likes.

    python tests/soak.py --minutes 30 --seed 1 [--kinds a,b] [--workers 2]

Kinds (`tests/soaking/`) take turns by trials: each declares a `WEIGHT`, about its share
of a thousand trials, and next is the kind that is furthest behind its share. So most
trials are of kinds that are cheap, while each kind has one in the first round and its
share of any run. Trial number i of a kind has the seed `--seed` + i, whatever else is
tried. Inputs that found something are written to `tests/found/`, where the default
tests replay them; the exit code is 1 then. Prints what was tried: a line for each kind
with its trials, outcomes, seconds and findings, and a last line of totals.

Properties of the default tests are tried on twenty times as many new inputs by
`pytest --hypothesis-profile long`.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "oracles"), str(ROOT.parent)]

import soaking  # noqa: E402

MOST_KEPT = 20  # findings of one kind
FOUND = "FOUND"  # the outcome of a trial that found something


@dataclass
class Tally:
    """What was tried of one kind."""

    outcomes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    slowest: tuple[float, int] = (0.0, 0)  # seconds and seed
    found: list[str] = field(default_factory=list)

    @property
    def trials(self) -> int:
        """How many inputs were drawn."""
        return sum(self.outcomes.values())

    def add(self, other: "Tally") -> None:
        """Count what another process tried, too."""
        self.outcomes += other.outcomes
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.found += other.found


def trial(kind: str, seed: int, tally: Tally) -> None:
    """Draw one input, check it, and keep it where something is found."""
    start = time.monotonic()
    data = soaking.drawn(kind, seed)
    try:
        outcome = soaking.kind(kind).check(data)
    except Exception as error:
        outcome = FOUND
        message = f"{type(error).__name__}: {error}"
        if len(tally.found) < MOST_KEPT:  # more of a kind are the same, most likely
            path = soaking.keep(kind, seed, data, message[:2000])
            tally.found.append(f"{path}\n{traceback.format_exc(limit=-4)}")
    took = time.monotonic() - start
    tally.outcomes[outcome] += 1
    tally.seconds += took
    tally.slowest = max(tally.slowest, (took, seed))


def soak(
    kinds: list[str], minutes: float, seed: int, step: int, trials: int | None
) -> dict[str, Tally]:
    """Try kinds in turn, each `step`-th seed; until the time or the trials are over."""
    tallies = {kind: Tally() for kind in kinds}
    end = time.monotonic() + 60 * minutes
    try:
        while time.monotonic() < end:
            open_ = [k for k in kinds if trials is None or tallies[k].trials < trials]
            if not open_:
                break
            kind = min(open_, key=lambda k: tallies[k].trials / soaking.kind(k).WEIGHT)
            trial(kind, seed + step * tallies[kind].trials, tallies[kind])
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: this is what was tried\n")
    return tallies


def table(tallies: dict[str, Tally]) -> str:
    """Trials, seconds, findings and outcomes by kind, and in all."""
    heads = ("kind", "trials", "seconds", "ms each", "slowest s (seed)", "findings")
    total = Tally()
    for tally in tallies.values():
        total.add(tally)
    rows = [
        *(_row(*item) for item in tallies.items()),
        [*_row("total", total)[:-1], ""],  # outcomes are words of their kinds
    ]
    widths = [max(len(row[i]) for row in (heads, *rows)) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, (*widths, 0), strict=True))
        for row in ([*heads, "outcomes"], *rows)
    )


def _row(name: str, tally: Tally) -> list[str]:
    return [
        name,
        str(tally.trials),
        f"{tally.seconds:.1f}",
        f"{1000 * tally.seconds / max(1, tally.trials):.1f}",
        f"{tally.slowest[0]:.1f} ({tally.slowest[1]})",
        str(tally.outcomes[FOUND]),
        ", ".join(f"{n} {word}" for word, n in tally.outcomes.most_common()),
    ]


def main(arguments: list[str] | None = None) -> int:
    """Read the options, soak, print the table; 1 where something was found."""
    known = soaking.kinds()
    parser = argparse.ArgumentParser(description="Random trials of hetopt's proofs.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(known), help="a,b: these alone")
    parser.add_argument("--workers", type=int, choices=(1, 2), default=1)
    parser.add_argument("--trials", type=int, help="of each kind and worker, at most")
    asked = parser.parse_args(arguments)
    kinds = asked.kinds.split(",")
    if unknown := sorted(set(kinds) - set(known)):
        parser.error(f"no kind {', '.join(unknown)}: there are {', '.join(known)}")
    shared = (kinds, asked.minutes)
    if asked.workers == 1:
        parts = [soak(*shared, asked.seed, 1, asked.trials)]
    else:
        with ProcessPoolExecutor(asked.workers) as pool:
            waiting = [
                pool.submit(soak, *shared, asked.seed + w, asked.workers, asked.trials)
                for w in range(asked.workers)
            ]
            parts = [each.result() for each in waiting]
    tallies = parts[0]
    for part in parts[1:]:
        for kind, tally in part.items():
            tallies[kind].add(tally)
    sys.stdout.write(table(tallies) + "\n")
    found = [text for tally in tallies.values() for text in tally.found]
    for text in found:
        sys.stdout.write(f"\nFOUND {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
