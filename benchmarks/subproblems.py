"""Subproblems: how far each heuristic is from the optimum, and what proves it.

    python benchmarks/subproblems.py [--time-limit 20] [--seeds 10] [--only P,...]
                                     [--instances tiny,autohet,...] [--rules] [--page]

Cases are random families (`hetopt.files.generated`, `files.clusters`) and every
instance of the library that poses the problem; of a partition and a recovery the plan
is AutoHet's, and the last node is lost. `hetopt.compare` sets all methods of a case
side by side, each within the time limit; single runs, one thread. With `--rules` these
are the heuristics and the exact method, without statements on back ends. A line of
results/subproblems.jsonl is a case; one that is there for the same limit is not run
again. The page is made of the lines with the limit of the last one.
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from itertools import count, islice
from math import ceil
from statistics import mean, median
from typing import Any, NamedTuple

from _measuring import keep, kept, publish

import hetopt
from hetopt import Limits, capability
from hetopt.errors import HetoptError
from hetopt.files import instance_names, problem_names
from hetopt.gaps import GapRow
from hetopt.result import Result

LINES, PAGE = "subproblems.jsonl", "subproblems.md"
PLANNING_S = 10.0  # for the plan whose pipeline is cut, or whose states are moved
#: Prices by GPU type, USD an hour: of no provider, in the order of what cards cost.
USD_PER_HOUR = {
    "A100": 2.0,
    "A800": 1.9,
    "H20": 1.2,
    "H800": 3.2,
    "P100": 0.4,
    "RTX3080Ti": 0.2,
    "RTX3090": 0.25,
    "RTX4090": 0.4,
    "T4": 0.3,
    "V100": 0.8,
    "V100-16GB": 0.8,
}
#: GPUs of the largest instance whose pipeline is proved: on more it takes minutes.
ONE_PIPELINE_GPUS = 16
#: GPUs of random clusters that the joint MILP of HexiScale is posed of as printed, and
#: how many of each there are for each seed.
JOINT = "statement hexiscale_literal"
JOINT_GPUS, JOINT_SHARE = (2, 3, 4), 5 / 3
#: Seeds of a random family, and folders of the library, that statements run on.
STATED_SEEDS, STATED_FOLDERS = 3, ("tiny", "post_training")


class Case(NamedTuple):
    """What a problem is posed of, and with which options."""

    family: str
    name: str
    options: dict[str, Any]


@cache
def clusters(wanted: tuple[str, ...]) -> list[Any]:
    """Instances of the library with a cluster, of some of its folders or of all."""
    loaded = [
        hetopt.load(name)
        for name in instance_names()
        if not wanted or name.partition("/")[0] in wanted
    ]
    return [instance for instance in loaded if instance.cluster is not None]


@cache
def planned(name: str) -> Any:
    """AutoHet's plan of an instance; None where it has none."""
    try:
        return hetopt.plan(name, "autohet", limits=PLANNING_S).plan
    except HetoptError:
        return None


def folder(name: str) -> str:
    """The folder of the library that a name is in."""
    return name.partition("/")[0]


def grouping(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """Groups of random GPUs, and of every cluster with one GPU or two a device."""
    for size in (12, 24, 48):
        for seed in range(seeds):
            yield Case(f"random, {size}", f"generated:grouping/{size}/{seed}", {})
    for one in clusters(wanted):
        for t in (1, 2):
            if all(node.count % t == 0 for node in one.planned_cluster.nodes):
                yield Case(folder(one.name), one.name, {"tensor_parallel": t})


def partition(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """Uneven layers on a third as many stages, and the pipelines of AutoHet's plans."""
    for size in (12, 24, 48):
        for seed in range(seeds):
            yield Case(f"random, {size}", f"generated:partition/{size}/{seed}", {})
    for one in clusters(wanted):
        if (plan := planned(one.name)) is not None:
            yield Case(folder(one.name), one.name, {"plan": plan})


def one_pipeline(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """Random tiny clusters, and those of the library that are not too large."""
    for kind in ("unequal", "islands"):
        for seed in range(seeds):
            yield Case(f"random, {kind}", f"generated:{kind}/tiny/{seed}", {})
    for one in clusters(wanted):
        if one.planned_cluster.gpu_count <= ONE_PIPELINE_GPUS:
            yield Case(folder(one.name), one.name, {})


def provisioning(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """Random offers, Espresso's, and clusters at prices of ours."""
    for kind in ("offers", "many_offers"):
        for seed in range(seeds):
            yield Case(f"random, {kind}", f"generated:{kind}/small/{seed}", {})
    for name in instance_names():
        if folder(name) == "espresso" and (not wanted or "espresso" in wanted):
            yield Case("espresso", name, {})
    for one in clusters(wanted):
        gpus = set(one.planned_cluster.gpus)
        if gpus <= set(USD_PER_HOUR):
            prices = {gpu: USD_PER_HOUR[gpu] for gpu in sorted(gpus)}
            yield Case(folder(one.name), one.name, {"usd_per_hour": prices})


def job_round(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """Random queues and Frenzy's, all of whose jobs wait; jobs of every instance."""
    for seed in range(seeds):
        yield Case("random, 30", f"generated:queue/30/{seed}", {})
    for name in problem_names():
        if not wanted or folder(name) in wanted:
            yield Case(folder(name), name, {})
    for one in clusters(wanted):
        yield Case(folder(one.name), one.name, {"jobs": 12, "batches": (4, 8, 16)})


def recovery(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """The last node of random clusters and of the library's is lost."""
    names = [f"generated:islands/16/{seed}" for seed in range(seeds)]
    for name in names + [one.name for one in clusters(wanted)]:
        nodes = hetopt.load(name).planned_cluster.nodes
        if len(nodes) > 1 and (plan := planned(name)) is not None:
            family = "random, 16" if name in names else folder(name)
            yield Case(family, name, {"plan": plan, "lost": (nodes[-1].name,)})


def training_plan(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """Random clusters that are small enough for the joint MILP."""
    for gpus in JOINT_GPUS:
        names = (f"generated:unequal/{gpus}/{seed}" for seed in count())
        able = (x for x in names if capability.carries(JOINT, hetopt.load(x)))
        for name in islice(able, ceil(seeds * JOINT_SHARE)):
            yield Case(f"random, {gpus} GPUs", name, {})


def post_training(seeds: int, wanted: tuple[str, ...]) -> Iterator[Case]:
    """Clusters whose work is to generate, too."""
    for one in clusters(wanted):
        if one.workload.generation is not None:
            yield Case(folder(one.name), one.name, {})


CASES: dict[str, Callable[[int, tuple[str, ...]], Iterator[Case]]] = {
    "device_grouping": grouping,
    "layer_partition": partition,
    "one_pipeline": one_pipeline,
    "provisioning": provisioning,
    "job_round": job_round,
    "post_training": post_training,
    "recovery": recovery,
    "training_plan": training_plan,
}


# --- rows ------------------------------------------------------------------------


def measured(
    problem: str, case: Case, limit_s: float, *, rules: bool = False
) -> dict[str, Any]:
    """All methods on a case; or why the instance poses no such problem.

    With `rules` the heuristics and the exact method alone.
    """
    found = {**_head(problem, case), "limit_s": limit_s}
    try:
        report = hetopt.compare(
            case.name,
            problem=problem,
            options=case.options,
            statements=() if rules else None,
            limits=Limits(time_s=limit_s),
        )
    except HetoptError as reason:
        return {**found, "refused": str(reason), "rows": []}
    optimum = _optimum(report.runs)
    rows = [
        {
            "method": _label(row),
            "kind": row.result.method.kind,
            "status": _status(row.result),
            "gap": None if optimum is None else row.gap_to_bound,
            "seconds": round(sum(row.result.seconds.values()), 4),
            "by": row.result.bound and row.result.bound.source,
        }
        for row in report.runs
    ]
    return {**found, "optimum": optimum, "rows": rows}


def stated(case: Case) -> bool:
    """Return whether statements run on a case."""
    if case.family in {f"random, {gpus} GPUs" for gpus in JOINT_GPUS}:
        return True
    if case.name.startswith("generated:"):
        return int(case.name.rpartition("/")[2]) < STATED_SEEDS
    return case.family in STATED_FOLDERS


def _status(result: Result) -> str:
    """Return the status of a result; `refused` where the method does not take the case.

    Such a one has taken no time at all.
    """
    return result.status.value if result.seconds else "refused"


def _head(problem: str, case: Case) -> dict[str, Any]:
    """What a case is known by: its plan is AutoHet's, and is not told."""
    return {
        "problem": problem,
        "family": case.family,
        "instance": case.name,
        "options": {k: v for k, v in case.options.items() if k != "plan"},
    }


def _label(row: GapRow) -> str:
    method = row.result.method
    exact = method.kind == "exact" and method.formulation is None
    return "exact" if exact else row.method


def _optimum(rows: tuple[GapRow, ...]) -> float | None:
    """The objective that is proved to be the best; None where none is."""
    proved = (row.result for row in rows if row.result.status.value == "optimal")
    found = next((result.objective for result in proved), None)
    return None if found is None else float(found)


def _key(line: dict[str, Any]) -> tuple[Any, ...]:
    options = json.dumps(line["options"], sort_keys=True)
    return line["problem"], line["instance"], options, line["limit_s"]


# --- the page --------------------------------------------------------------------


def page(lines: list[dict[str, Any]]) -> str:
    """The gaps of rules, and what back ends prove, problem by problem."""
    limit = lines[-1]["limit_s"]
    latest = {_key(line): line for line in lines if line["limit_s"] == limit}
    lines = list(latest.values())
    text = [
        "# Subproblems: rules beside the optimum",
        "",
        "By `python benchmarks/subproblems.py`: every rule of a problem on random",
        "families and on the library's instances, beside the optimum that some",
        f"method proves within {limit:g} s; single runs, one thread, shared cores.",
        "Gaps are of the cases in which the optimum is proved and the rule has a plan;",
        "*planned* says in how many it has one: a mean of fewer cases may be of easy",
        "ones. *common mean* is of the cases of a family in which all rules have a",
        "plan that have any there. Families of the library that are",
        f"missing did not run. Statements ran on the first {STATED_SEEDS} seeds of",
        "each random family, on the tiny instances and those of RL, as their tables",
        "count; what a method does not take, such as pipelines in lockstep, is none of",
        "its cases.",
    ]
    for problem in CASES:
        mine = [line for line in lines if line["problem"] == problem]
        if not any(line["rows"] for line in mine):
            continue
        text += ["", f"## {problem}", "", *_rules(mine), "", *_provers(mine)]
        if refused := sum("refused" in line for line in mine):
            told = f"Instances that do not pose it: {refused}."
            text += ["", f"{told} The results file says why of each."]
    return "\n".join(text) + "\n"


def _rules(lines: list[dict[str, Any]]) -> Iterator[str]:
    """A row a rule and family."""
    yield (
        "| rule | cases | planned | mean gap | median | worst | common mean "
        "| median seconds |"
    )
    yield "|---|---|---:|---:|---:|---:|---:|---:|"
    common = _common(lines)
    found: dict[tuple[str, str], list[tuple[bool, float | None, float]]] = {}
    for line in lines:
        for row in line["rows"]:
            if row["kind"] == "heuristic":
                solvable = line["optimum"] is not None
                case = solvable, row["gap"], row["seconds"]
                found.setdefault((row["method"], line["family"]), []).append(case)
    for (method, family), mine in sorted(found.items()):
        gaps = [gap for _, gap, _ in mine if gap is not None]
        cells = ["–"] * 3
        if gaps:
            cells = [f"{x:.1%}" for x in (mean(gaps), median(gaps), max(gaps))]
        shared = common[family]
        told = "–"
        if gaps and shared:
            told = f"{mean(x[method] for x in shared):.1%} of {len(shared)}"
        seconds = median(took for _, _, took in mine)
        yield (
            f"| `{method}` | {family} | {len(gaps)} of {sum(x for x, _, _ in mine)} | "
            f"{' | '.join(cells)} | {told} | {seconds:.3g} |"
        )


def _common(lines: list[dict[str, Any]]) -> dict[str, list[dict[str, float]]]:
    """Gaps by rule, of the cases of a family in which all have one that have any."""
    each: dict[str, list[dict[str, float]]] = defaultdict(list)
    for line in lines:
        rules = (row for row in line["rows"] if row["kind"] == "heuristic")
        gaps = {row["method"]: row["gap"] for row in rules if row["gap"] is not None}
        each[line["family"]].append(gaps)
    every = {family: set().union(*found) for family, found in each.items()}
    return {
        family: [gaps for gaps in found if gaps and set(gaps) == every[family]]
        for family, found in each.items()
    }


def _provers(lines: list[dict[str, Any]]) -> Iterator[str]:
    """A row a statement on a back end, and the exact method."""
    yield (
        "| statement, back end | cases | proved | by CP-SAT, as floats prove nothing "
        "| median seconds to a proof | most |"
    )
    yield "|---|---:|---:|---:|---:|---:|"
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        for row in line["rows"]:
            if row["kind"] == "exact" and row["status"] != "refused":
                found[row["method"]].append(row)
    for method, mine in sorted(found.items()):
        proofs = [r for r in mine if r["status"] in ("optimal", "infeasible")]
        took = [r["seconds"] for r in proofs]
        known = [r["by"] for r in proofs if "by" in r]
        asked = sum(str(by).startswith("cpsat dual of ") for by in known)
        of = f"{asked} of {len(known)}" if known else "not kept"
        told = f"{median(took):.3g} | {max(took):.3g}" if took else "– | –"
        yield f"| {method} | {len(mine)} | {len(took)} | {of} | {told} |"


def main(words: list[str] | None = None) -> None:
    """Measure what is asked for and not there yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--time-limit", type=float, default=20.0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--instances", default="", help="folders of the library")
    parser.add_argument("--rules", action="store_true", help="without statements")
    parser.add_argument("--page", action="store_true", help="only the page")
    asked = parser.parse_args(words)
    wanted = tuple(word for word in asked.instances.split(",") if word)
    done = {_key(line) for line in kept(LINES)}
    for problem in [] if asked.page else asked.only.split(","):
        for case in CASES[problem](asked.seeds, wanted):
            head = {**_head(problem, case), "limit_s": asked.time_limit}
            if _key(head) in done:
                continue
            rules = asked.rules or not stated(case)
            found = measured(problem, case, asked.time_limit, rules=rules)
            keep(LINES, found, "ortools", "pyscipopt", "pulp")
            print(problem, case.name, len(found["rows"]), "rows", flush=True)
    publish(PAGE, page(kept(LINES)), LINES)


if __name__ == "__main__":
    main()
