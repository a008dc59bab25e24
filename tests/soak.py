"""Random trials of what hetopt states, for as long as one likes.

    python tests/soak.py --minutes 30 --seed 1 [--kinds a,b]

Kinds (`tests/soaking/`) take turns by trials: each declares a `WEIGHT`, about its share
of a thousand trials, and next is the kind that is furthest behind its share. So most
trials are of kinds that are cheap, while each kind has one in the first round and its
share of any run. Trial number i of a kind has the seed `--seed` + i, whatever else is
tried. Inputs that found something are written to `tests/found/`, where the default
tests replay them; the exit code is 1 then. Prints a line for each kind: its trials,
seconds and outcomes.

Properties of the default tests are tried on twenty times as many new inputs by
`pytest --hypothesis-profile long`.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path[:0] = [str(ROOT), str(ROOT / "oracles"), str(ROOT.parent)]

import soaking  # noqa: E402

FOUND = "FOUND"  # the outcome of a trial that found something


def trial(kind: str, seed: int) -> str:
    """Draw one input and check it; where something is found, keep and tell it."""
    data = soaking.drawn(kind, seed)
    try:
        return str(soaking.kind(kind).check(data))
    except Exception as error:
        message = f"{type(error).__name__}: {error}"
        path = soaking.keep(kind, seed, data, message[:2000])
        sys.stdout.write(f"\n{FOUND} {path}\n{traceback.format_exc(limit=-4)}")
        return FOUND


def main(arguments: list[str] | None = None) -> int:
    """Read the options, soak, print what was tried; 1 where something was found."""
    known = soaking.kinds()
    parser = argparse.ArgumentParser(description="Random trials of hetopt's proofs.")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(known), help="a,b: these alone")
    parser.add_argument("--trials", type=int, help="of each kind, at most")
    asked = parser.parse_args(arguments)
    kinds = asked.kinds.split(",")
    if unknown := sorted(set(kinds) - set(known)):
        parser.error(f"no kind {', '.join(unknown)}: there are {', '.join(known)}")
    outcomes = {kind: Counter[str]() for kind in kinds}
    seconds = dict.fromkeys(kinds, 0.0)
    end = time.monotonic() + 60 * asked.minutes
    try:
        while (now := time.monotonic()) < end:
            tried = {kind: outcomes[kind].total() for kind in kinds}
            left = [k for k in kinds if asked.trials is None or tried[k] < asked.trials]
            if not left:
                break
            kind = min(left, key=lambda k: tried[k] / soaking.kind(k).WEIGHT)
            outcomes[kind][trial(kind, asked.seed + tried[kind])] += 1
            seconds[kind] += time.monotonic() - now
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: this is what was tried\n")
    for kind, found in outcomes.items():
        told = ", ".join(f"{n} {word}" for word, n in found.most_common())
        line = f"{kind:<20}{found.total():>7} trials{seconds[kind]:>9.1f} s  {told}\n"
        sys.stdout.write(line)
    return int(any(found[FOUND] for found in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
