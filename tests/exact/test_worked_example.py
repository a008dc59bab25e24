"""The page on proofs: its example, recomputed by listing every pipeline."""

import re
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations, permutations

from places import ROOT

import hetopt
from hetopt.result import Status

PAGE = ROOT / "hetopt" / "exact" / "README.md"
NAME = "tiny/worked-example"
LAYERS, BATCH, TIME_US = 4, 12, 20_000
US = {"fast": 1000, "slow": 2000}
MOST = {"fast": 3, "slow": 2}  # layers that fit
PRICES = {"fast": Fraction(4), "slow": Fraction(3, 2)}
GPUS = ("fast", "fast", "slow", "slow")


def pipelines() -> Iterator[tuple[tuple[str, ...], int, int]]:
    """Every pipeline: its GPUs, the sum of its stages' times, the slowest of them."""
    for many in range(1, len(GPUS) + 1):
        for gpus in sorted({*permutations(GPUS, many)}):
            for cuts in combinations(range(1, LAYERS), many - 1):
                ends = zip((0, *cuts), (*cuts, LAYERS), strict=True)
                held = [z - a for a, z in ends]
                if all(n <= MOST[gpu] for n, gpu in zip(held, gpus, strict=True)):
                    times = [n * US[gpu] for n, gpu in zip(held, gpus, strict=True)]
                    yield tuple(sorted(gpus)), sum(times), max(times)


def trained(total: int, slowest: int, limit: int) -> int:
    """Micro-batches of a pipeline within the limit."""
    return max(0, 1 + (limit - total) // slowest)


def columns(limit: int) -> dict[tuple[str, ...], int]:
    """The most that pipelines on the same GPUs train within the limit."""
    most: dict[tuple[str, ...], int] = {}
    for gpus, total, slowest in pipelines():
        most[gpus] = max(most.get(gpus, 0), trained(total, slowest, limit))
    return most


def packed(most: dict[tuple[str, ...], int], left: tuple[str, ...]) -> int:
    """The most that pipelines on different GPUs train together."""
    best = 0
    for gpus, sequences in most.items():
        rest = list(left)
        for gpu in gpus:
            if gpu not in rest:
                break
            rest.remove(gpu)
        else:
            best = max(best, sequences + packed(most, tuple(rest)))
    return best


def test_the_prices_of_the_page_refute_every_shorter_time() -> None:
    most = columns(TIME_US - 1)
    for gpus, sequences in most.items():
        assert sequences <= sum(PRICES[gpu] for gpu in gpus)
    assert sum(PRICES[gpu] for gpu in GPUS) < BATCH


def test_the_table_of_the_page_has_every_pipeline() -> None:
    text = PAGE.read_text("utf-8")
    rows = re.findall(
        r"(?m)^\| ((?:fast|slow)[a-z, ]*) \|.*= (\d+) \| ([\d.]+) \|$", text
    )
    told = {
        tuple(sorted(gpus.split(", "))): (int(w), Fraction(y)) for gpus, w, y in rows
    }
    listed = {
        gpus: (sequences, sum(PRICES[gpu] for gpu in gpus))
        for gpus, sequences in columns(TIME_US - 1).items()
    }
    assert told == listed


def test_the_optimum_of_the_page_is_that_of_all_packings() -> None:
    assert packed(columns(TIME_US), GPUS) >= BATCH
    assert packed(columns(TIME_US - 1), GPUS) < BATCH
    result = hetopt.solve(NAME, "training_plan", limits=60)
    assert (result.status, result.objective) == (Status.OPTIMAL, TIME_US)
