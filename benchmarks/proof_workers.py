"""One proof by one process and by two, and what its cases would let more do.

    python benchmarks/proof_workers.py [--gap 0.07] [--instance NAME] [--page]

Refutes that a plan is faster than the best known one by more than the gap: by one
process, whose seconds for every case are kept, and by two as `hetopt plan --exact
--workers 2` does. Preparing tables is told apart, as each process has its own. The
picture is of the seconds that N processes would take for the measured cases, each
begun when its whole is divided and a process is free. Appends to
results/proof_workers.jsonl; `--page` writes results/proof_workers.md and .svg.

It reaches into the exact method, as no command says how long a case takes.
"""

import argparse
import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from time import perf_counter

import _pages
import matplotlib as mpl
from _measuring import RESULTS
from matplotlib.figure import Figure

import hetopt
from hetopt.bench import best
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact.training_plan.patterns import side_by_side
from hetopt.exact.training_plan.patterns.bound import PatternBound, variants

LINES, PAGE, PICTURE = (f"proof_workers.{end}" for end in ("jsonl", "md", "svg"))
HEAD = """# Proofs by several processes

Made by `python benchmarks/proof_workers.py --page`. Cases of a proof are settled by
themselves: `hetopt plan --exact --workers N` sends them to N processes. Seconds are of
the wall, from one run each, after the other; tables are each process's own.

![seconds by processes](proof_workers.svg)
"""
NUMBERS = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class Step:
    """A case that was settled or divided: how long it took, and its parts."""

    seconds: float
    parts: list[int] = field(default_factory=list)


def alone(bound: PatternBound, time_us: float) -> tuple[bool, list[Step], list[int]]:
    """Whether one process refutes it, its steps, and the first of them."""
    refutation, steps = bound.refute(time_us), list[Step]()
    numbers: dict[int, int] = {}
    first = [id(case) for case in refutation.open]
    while refutation.open and not refutation.failed:
        case, begun = refutation.open[-1], perf_counter()
        refutation.step()
        numbers[id(case)] = len(steps)
        parts = case.split.parts if case.split is not None else []
        steps.append(Step(perf_counter() - begun, [id(part) for part in parts]))
    for step in steps:
        step.parts = [numbers[part] for part in step.parts if part in numbers]
    return refutation.proved, steps, [numbers[each] for each in first]


def by(number: int, steps: list[Step], first: list[int]) -> float:
    """Seconds of so many processes for the same steps, by the order of readiness."""
    free, order = [0.0] * number, count()
    ready = [(0.0, next(order), step) for step in first]
    end = 0.0
    while ready:
        since, _, step = heapq.heappop(ready)
        ended = max(since, heapq.heappop(free)) + steps[step].seconds
        heapq.heappush(free, ended)
        end = max(end, ended)
        for part in steps[step].parts:
            heapq.heappush(ready, (ended, next(order), part))
    return end


def measured(words: argparse.Namespace) -> Iterator[_pages.Row]:
    """One process and two"""
    instance, known = hetopt.load(words.instance), best.known(words.instance)
    (variant,) = variants(instance)
    objective = float(known.objective)
    least = float(training_plan_bound(instance).value)
    goal = objective / (1 + words.gap)
    begun = perf_counter()
    bound = PatternBound(variant, least, objective)
    proved, steps, first = alone(bound, goal)
    one = perf_counter() - begun
    begun = perf_counter()
    with side_by_side.processes(2) as two:
        assert two is not None
        other = PatternBound(variant, least, objective)
        refutation = side_by_side.SideBySide(other, goal, two)
        while refutation.step():
            pass
    both = perf_counter() - begun
    assert refutation.proved == proved
    yield {
        "instance": words.instance,
        "gap": words.gap,
        "refuted": proved,
        "cases": len(steps),
        "one process, s": one,
        "two processes, s": both,
        "times as fast": one / both,
        **{f"cases on {n}, s": by(n, steps, first) for n in NUMBERS},
    }


def draw(row: _pages.Row) -> None:
    """Seconds by processes, for the cases measured."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    seconds = [row[f"cases on {n}, s"] for n in NUMBERS]
    axes.plot(NUMBERS, seconds, marker="o", label="the measured cases")
    axes.plot(NUMBERS, [seconds[0] / n for n in NUMBERS], "--", label="divided evenly")
    axes.set(xscale="log", yscale="log", xlabel="processes", ylabel="seconds")
    axes.set_xticks(NUMBERS, [str(n) for n in NUMBERS])
    axes.legend(frameon=False)
    with mpl.rc_context({"svg.hashsalt": "proof_workers"}):
        figure.savefig(RESULTS / PICTURE, metadata={"Date": None})


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--instance", default="hexiscale/setting-3-llama-30b")
    parser.add_argument("--gap", type=float, default=0.07)
    parser.add_argument("--page", action="store_true")
    words = parser.parse_args()
    if not words.page:
        _pages.run(LINES, "workers", lambda _: measured(words), None, "numpy")
        return
    _pages.write(PAGE, LINES, HEAD, {"workers": (measured, "")})
    draw(_pages.latest(LINES, "workers")[-1])


if __name__ == "__main__":
    main()
