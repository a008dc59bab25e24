"""One proof by one process and by two, and what its boxes would let more do.

    python benchmarks/proof_workers.py [--gap 0.07] [--instance NAME] [--page]

Refutes, for ever smaller gaps down to the one given, that a plan is faster than the
best known one by more: by one process, whose seconds for every box are kept, and by
two as `hetopt plan --exact --workers 2` does. These begin while plans are searched for,
which is told apart. The picture is of the seconds that N processes would take for the
measured boxes, each begun when its whole is divided and a process is free, without the
tables that every process makes for itself. Appends to results/proof_workers.jsonl;
`--page` writes results/proof_workers.md and .svg.

It reaches into the exact method, as no command says how long a box takes.
"""

import argparse
import heapq
from collections.abc import Iterator
from concurrent import futures
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
from hetopt.exact.pipelines import side_by_side
from hetopt.exact.pipelines.bound import PipelineBound, Refutation
from hetopt.exact.training_plan.refuting import _ALL_GOALS
from hetopt.problems.training_plan.settings import variants

LINES, PAGE, PICTURE = (f"proof_workers.{end}" for end in ("jsonl", "md", "svg"))
HEAD = """# Proofs by several processes

Made by `python benchmarks/proof_workers.py --page`. Boxes of a proof are settled by
themselves: `hetopt plan --exact --workers N` sends them to N processes. Seconds are of
the wall, from one run each, after the other, for all times that are refuted on the way
to the gap. Tables are each process's own, and two make some of them twice.

![seconds by processes](proof_workers.svg)
"""
NUMBERS = (1, 2, 4, 8, 16, 32, 64)


@dataclass
class Step:
    """A box that was settled or divided: how long it took, and its parts."""

    seconds: float = 0.0
    parts: list[int] = field(default_factory=list)


def alone(refutation: Refutation) -> tuple[list[Step], list[int]]:
    """Its steps by one process, and the first of them."""
    steps, numbers = list[Step](), dict[int, int]()
    first = [id(box) for box in refutation.open]
    while refutation.open and not refutation.failed:
        box, begun = refutation.open[-1], perf_counter()
        refutation.step()
        at = numbers.setdefault(id(box), len(steps))
        if at == len(steps):  # else it is looked at again
            steps.append(Step())
        steps[at].seconds += perf_counter() - begun
        if box.split is not None:
            steps[at].parts = [id(box.split.low), id(box.split.high)]
    for step in steps:
        step.parts = [numbers[part] for part in step.parts if part in numbers]
    return steps, [numbers[each] for each in first]


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
    objective = int(known.objective)
    least = int(training_plan_bound(instance).value)
    gaps = [*(gap for gap in _ALL_GOALS if gap > words.gap), words.gap]
    goals = [int(objective / (1 + gap)) for gap in gaps]

    def prepared() -> PipelineBound:
        return PipelineBound(variant, objective, least)

    begun = perf_counter()
    bound, proofs = prepared(), []
    for goal in goals:
        refutation = bound.refute(goal)
        proofs.append(alone(refutation))
    one = perf_counter() - begun
    with side_by_side.processes(2) as two:
        assert two is not None
        begun = perf_counter()
        two.begin()
        futures.wait([each.submit(int) for each in two.executors])
        ready = perf_counter()
        bound = prepared()
        for goal in goals:
            other = side_by_side.SideBySide(bound, goal, two)
            while other.step():
                pass
        both = perf_counter() - ready
    assert refutation.proved == other.proved
    yield {
        "instance": words.instance,
        "gap": words.gap,
        "refuted": refutation.proved,
        "times refuted": len(goals),
        "cases": sum(len(steps) for steps, _ in proofs),
        "one process, s": one,
        "two processes, s": both,
        "times as fast": one / both,
        "two begin, s": ready - begun,
        **{f"cases on {n}, s": sum(by(n, *proof) for proof in proofs) for n in NUMBERS},
    }


def draw(row: _pages.Row) -> None:
    """Seconds by processes, for the boxes measured."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    seconds = [row[f"cases on {n}, s"] for n in NUMBERS]
    axes.plot(NUMBERS, seconds, marker="o", label="the measured boxes")
    axes.plot(NUMBERS, [seconds[0] / n for n in NUMBERS], "--", label="divided evenly")
    axes.set(xscale="log", yscale="log", xlabel="processes", ylabel="seconds")
    axes.set_xticks(NUMBERS, [str(n) for n in NUMBERS])
    axes.legend(frameon=False)
    with mpl.rc_context({"svg.hashsalt": "proof_workers"}):
        figure.savefig(RESULTS / PICTURE, metadata={"Date": None})


def main(words: list[str] | None = None) -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--instance", default="hexiscale/setting-3-llama-30b")
    parser.add_argument("--gap", type=float, default=0.07)
    parser.add_argument("--page", action="store_true")
    words = parser.parse_args(words)
    if not words.page:
        _pages.run(LINES, "workers", lambda _: measured(words), None, "numpy")
        return
    _pages.write(PAGE, LINES, HEAD, {"workers": (measured, "")})
    draw(_pages.latest(LINES, "workers")[-1])


if __name__ == "__main__":
    main()
