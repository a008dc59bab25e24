"""What is proved of every training plan, and what each part of the bound brings.

    python benchmarks/run.py proofs --workers 2 [--update-best]     the rows
    python benchmarks/proofs.py --ablations [--seconds 10]          without each part
    python benchmarks/proofs.py --check [--only WORD ...] [--workers N]   bounds again
    python benchmarks/proofs.py --page       results/proofs.md, and a table of README.md

The suite runs the exact method once on each cluster of the library and of the generated
families. "By total work" is how far the best plan is from the bound that needs no
search, derived anew. `--ablations` asks for the bound alone, below the best known plan,
in so many CPU seconds, and takes one part away at a time: it replaces functions inside
the method. Appends to results/proofs.jsonl. The suite takes
25 minutes with 2 workers, the ablations 27 and checks an hour, each on one core.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import _gap_table
import _pages
import families
from _measuring import RESULTS, keep, publish
from joblib import Parallel, delayed

import hetopt
from hetopt.api import check_bound
from hetopt.bench import journal
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import OutOfTime
from hetopt.exact import one_pipeline
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.boxes import Division
from hetopt.exact.pipelines.coupling import Coupling
from hetopt.exact.pipelines.pricing import Prices, Pricing
from hetopt.exact.training_plan import refuting
from hetopt.stages import StageTable, classes, sync
from hetopt.text import writing

LINES, PAGE, FOLDER = "proofs.jsonl", "proofs.md", RESULTS / "proofs"
README = RESULTS.parent / "README.md"
CHECK_S = 600  # for each bound
MARKS = ("<!-- proofs: begin -->", "<!-- proofs: end -->")
ABLATED = (
    "hexiscale/case-study",
    "hexiscale/setting-1-llama2-7b",
    "hexiscale/setting-3-llama-30b",
    "autohet/a100-h20-8x8-gpt3-13b",
    "autohet/h800-a100-4x4-gpt3-6.7b",
    "metis/p100-v100-16-gpt3-6.7b",
    "metis/t4-v100-16-gpt3-6.7b",
    "metis/t4-v100-16-moe-10b",
    "metis/t4-v100-64-gpt3-15b",
    "metis/p100-t4-16-wide-resnet-4b",
    "generated:steep/64/1",
    "generated:islands/16/1",
    "generated:tight_memory/64/0",
)
HEAD = """# What is proved of training plans

One run of the exact method an instance, from nothing; the gap is how much slower the
best known plan is than what is proved, an upper limit of what it loses. "By total work"
is the same for the bound that needs no search: all GPUs busy with the work alone.

"""


class _Known:
    """What a refutation tightens: the bound, and nothing else."""

    def __init__(self, value: float) -> None:
        self.bound = hetopt.Bound(Fraction(value), "total work")
        self.objective = None
        self.certificate = None

    def tighten(self, value: Any, source: str) -> None:
        self.bound = hetopt.Bound(Fraction(value), source)

    def check(self) -> None:
        """There is no limit but that of the refuter."""


def refuted(name: str, plan_us: float, seconds: float) -> float:
    """The best bound in us below a plan that so many CPU seconds prove."""
    instance = hetopt.load(name)
    known = _Known(max(1, int(training_plan_bound(instance).value)))
    now, limits = time.process_time, hetopt.Limits(time_s=seconds)
    clock = refuting.Clock(now() + seconds, now=now)
    alone_us = one_pipeline.faster(instance, int(plan_us), limits, lambda plan: None)
    with suppress(OutOfTime):
        times = refuting.Times(int(known.bound.value), int(plan_us), alone_us)
        refuting.Tightening(instance, times, clock).tighten(known)
    return float(known.bound.value)


# --- what is taken away ---------------------------------------------------------------


def _no_hops(stack: ExitStack) -> None:
    def none(table: Any, names: Any, samples: int) -> Any:
        nothing = classes.whole_us([0] * (samples + 1))
        return nothing, nothing

    stack.enter_context(patch.object(classes, "_transfers", none))


def _no_synchronisation(stack: ExitStack) -> None:
    stack.enter_context(patch.object(sync, "_fastest_inter", lambda table: None))
    stack.enter_context(patch.object(sync, "_intra", lambda table, node: None))


def _no_shares(stack: ExitStack) -> None:
    def nothing(coupling: Coupling, degree: int, replicas: int) -> Any:
        return 0 * coupling.table.sync.low

    stack.enter_context(patch.object(Coupling, "_beyond", nothing))


def _no_held_sizes(stack: ExitStack) -> None:
    most: Any = Pricing.most_prices

    def free(pricing: Pricing) -> Prices:
        return most.func(pricing)._replace(held=0)

    stack.enter_context(patch.object(Pricing, "most_prices", property(free)))


def _no_unordered_layers(stack: ExitStack) -> None:
    stack.enter_context(patch.object(StageTable, "_equal", False))


def _no_pipelines_on_nodes(stack: ExitStack) -> None:
    stack.enter_context(patch.object(one_pipeline, "faster", lambda *_: 0))


def _no_whole_pipelines(stack: ExitStack) -> None:
    stack.enter_context(patch.object(PipelineBound, "_whole", lambda *_: False))


def _no_enumeration(stack: ExitStack) -> None:
    stack.enter_context(patch.object(refuting, "is_enumerated", lambda _: False))


def _no_hosts(stack: ExitStack) -> None:
    stack.enter_context(patch.object(Division, "_by_host", lambda *_: None))


WITHOUT: dict[str, Callable[[ExitStack], None]] = {
    "all": lambda stack: None,
    "hops": _no_hops,
    "synchronisation": _no_synchronisation,
    "shares of nodes": _no_shares,
    "held sizes": _no_held_sizes,
    "layers in any order": _no_unordered_layers,
    "pipelines on nodes": _no_pipelines_on_nodes,
    "whole pipelines": _no_whole_pipelines,
    "enumeration": _no_enumeration,
    "hosts": _no_hosts,
}


def ablations(seconds: float) -> Iterator[_pages.Row]:
    """Gaps of the best known plan without one part at a time."""
    for name in ABLATED:
        plan_us = float(_best_us(name))
        row: _pages.Row = {"instance": f"`{name}`"}
        for word, take_away in WITHOUT.items():
            with ExitStack() as stack:
                take_away(stack)
                bound = refuted(name, plan_us, seconds)
            row[word if word == "all" else f"without {word}"] = gap(plan_us, bound)
        yield row


def _best_us(name: str) -> int:
    if name.startswith("generated:"):  # known to the suite alone
        rows = journal.read(FOLDER)[1]
        return int(next(row["objective"] for row in rows if row["instance"] == name))
    path = RESULTS.parent.parent / "instances" / f"{name}.best.json"
    return int(json.loads(path.read_text(encoding="utf-8"))["objective"])


def gap(plan: float, bound: float) -> str:
    """A gap as a cell."""
    return f"{plan / bound - 1:.1%}"


# --- the rows of the suite ------------------------------------------------------------


def proved() -> Iterator[_pages.Row]:
    """Gaps by total work and now, of every instance of the suite."""
    again = {(row["instance"], row["bound"]): row["derived"] for row in _all_checks()}
    for row in journal.read(FOLDER)[1]:
        name = row["instance"]
        told: _pages.Row = {"instance": f"`{name}`", "GPUs": row["size"]}
        best, bound = row.get("objective"), row.get("bound")
        if not name.startswith("generated:"):
            best = min(best or _best_us(name), _best_us(name))
        told["best"] = best and f"{best / 1e6:.4g} s"
        if row["status"] == "infeasible":
            told |= {"by total work": None, "now": "none fits: proved"}
        elif best and bound:
            least = float(training_plan_bound(hetopt.load(name)).value)
            told["by total work"] = gap(best, least)
            told["now"] = "proved" if bound >= best else gap(best, bound)
        told["seconds"] = round(row["seconds"]["solve"])
        told["bound by"] = row.get("bound_source")
        told["derived again"] = again.get((name, bound))
        yield told


def _latest(section: str) -> list[_pages.Row]:
    """Rows of a section, none before its first run."""
    try:
        return _pages.latest(LINES, section)
    except (FileNotFoundError, IndexError):
        return []


def _all_checks() -> Iterator[_pages.Row]:
    """Rows of all runs of checks that say what bound they are of, in their order."""
    with suppress(FileNotFoundError):
        lines = (RESULTS / LINES).read_text(encoding="utf-8").splitlines()
        each = (json.loads(line) for line in lines)
        rows = (one["row"] for one in each if one["section"] == "checks")
        yield from (row for row in rows if "bound" in row)


def checks(words: list[str], workers: int) -> Iterator[_pages.Row]:
    """Whether each bound of the suite is derived again, some side by side."""
    files = [
        (row["instance"], row["bound"], row["plan_file"])
        for row in journal.read(FOLDER)[1]
        if row.get("plan_file")
        and (not words or any(word in row["instance"] for word in words))
    ]
    pool = Parallel(n_jobs=workers, return_as="generator_unordered", pre_dispatch="all")
    yield from pool(delayed(_checked)(*each) for each in files)


def _checked(name: str, bound: Any, file: str) -> _pages.Row:
    begun = time.perf_counter()
    found = check_bound(FOLDER / file, limits=CHECK_S)
    derived = f"no: {found.missing[0]}" if found.missing else f"yes: {found.proof}"
    seconds = round(time.perf_counter() - begun, 1)
    return {"instance": name, "bound": bound, "derived": derived, "seconds": seconds}


def write() -> None:
    """The page, with all rows and what each part brings, and README.md's counts."""
    rows = list(proved())
    head, _ = journal.read(FOLDER)
    limits = ", ".join(f"{limit:g}" for limit in head["limits"]["time_limit_s"])
    made = (
        f"*Run {head['started']}, limit {limits} s, {head['workers']} workers, "
        f"{head['machine']['processor']}, {head['machine']['cores']} cores, commit "
        f"{head['commit'][:10]}.*"
    )
    words = [
        HEAD,
        counts(rows),
        "\n## Every cluster\n",
        *_pages.table(rows),
        f"\n{made}",
    ]
    if found := _latest("ablations"):
        words += ["\n## Without each part\n", WHY, *_pages.table(found)]
        words.append(f"\n{_pages.ran(LINES, 'ablations')}")
    publish(PAGE, "\n".join(words) + "\n", "proofs/rows.jsonl")
    text = README.read_text(encoding="utf-8")
    library = [row for row in rows if "generated:" not in row["instance"]]
    told = counts(library, families.counted())
    writing.write_text(README, _gap_table.replaced(text, told, MARKS))


WHY = """The gap of the best known plan to the bound that equal CPU seconds prove. Hops
between stages; gradients, and the shares of nodes for which replicas compete; memory
that limits what all replicas can hold; equal layers in any order, so that each node is
visited once; single pipelines of micro-batches of one sequence, searched for on named
nodes; whole pipelines by the GPUs that they use; how many nodes hold all replicas of a
layer; and boxes whose pipelines are all listed.
"""


def counts(rows: list[_pages.Row], more: list[list[str]] | None = None) -> str:
    """How many are proved, or near it, by family; `more` are rows of other pages."""
    each: dict[str, list[str]] = {}
    for row in rows:
        name = row["instance"].strip("`")
        family = name.removeprefix("generated:").split("/")
        key = (
            family[0] if ":" not in name else f"generated {family[0]}, {family[1]} GPUs"
        )
        each.setdefault(key, []).append(row.get("now") or "no plan")
    cells = [
        [key, len(found), sum("proved" in gap for gap in found), _middle(found)]
        for key, found in each.items()
    ]
    told = [[*map(str, c[:3]), *c[3]] for c in cells]
    return "\n".join(_pages.grid(families.HEADERS, (more or []) + told))


def _middle(found: list[str]) -> tuple[str, str]:
    gaps = sorted(
        0.0 if "proved" in gap else float(gap.rstrip("%"))
        for gap in found
        if gap != "no plan"
    )
    if not gaps:
        return "–", "–"
    return f"{gaps[(len(gaps) - 1) // 2]:g}%", f"{gaps[-1]:g}%"


def main() -> None:
    """Measure, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--ablations", action="store_true")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    if asked.ablations:
        _pages.run(LINES, "ablations", ablations, asked.seconds)
    if asked.check:
        begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
        for row in checks(asked.only, asked.workers):
            print(*row.values(), flush=True)
            keep(LINES, {"section": "checks", "run": begun, "row": row})
    if asked.page:
        write()


if __name__ == "__main__":
    main()
