"""Results, judgements and gap reports as tables for a terminal."""

from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from textwrap import wrap
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from ..api.fronts import FRONT, Tradeoffs
from ..exact.provisioning import Frontier
from ..gaps import GapReport
from ..plans import (
    Grouping,
    Partition,
    Plan,
    Provisioning,
    Recovery,
    Stage,
    TrainingPlan,
)
from ..problems import Evaluation
from ..result import Result, Stop
from ..schema import Cluster, Instance, exact
from . import words
from .rows import COLUMNS, SUMMARY_HEADINGS, sections, summary_rows

MOST_LINKS = 12  # of a recovery, in its table


def compared(report: GapReport) -> Iterator[RenderableType]:
    """A table for each instance; a summary where there are several."""
    parts = sections(report)
    for part in parts:
        yield Text(words.plain(part.instance), style="bold")
        yield Text(words.plain(part.headline), style="dim")
        headings = [(column.heading, column.numeric) for column in COLUMNS]
        cells = ([column.text(row) for column in COLUMNS] for row in part.rows)
        yield rich_table(headings, cells)
        yield ""
    if len(parts) > 1:
        yield Text("summary", style="bold")
        numbers = [(heading, True) for heading in SUMMARY_HEADINGS.values()]
        yield rich_table([("planner", False), *numbers], summary_rows(report))


def solved(result: Result) -> Iterator[RenderableType]:
    """What is known, and the plan."""
    yield facts_table(_known(result))
    if result.plan is not None and result.evaluation is not None:
        yield ""
        yield from judged(result.data, result.plan, result.evaluation)


def judged(data: Any, plan: Plan, found: Evaluation) -> Iterator[RenderableType]:
    """The plan with its times and memory, its totals, and the rules that it breaks."""
    if table := _planrich_table(data, plan, found.parts):
        yield table
    if facts := list(_totals(found.parts)):
        yield facts_table(facts)
    for violation in found.violations:
        yield Text(f"breaks {words.plain(str(violation))}", style="red")


def traded(front: Frontier) -> Iterator[RenderableType]:
    """A Pareto front: a row for each best trade of cost against time."""
    rows = [
        [
            words.duration(point.evaluation.parts["total_s"]),
            words.number(point.evaluation.parts["usd"]),
            " + ".join(f"{n} × {g}" for g, n in _hired(point.evaluation.parts)),
            _runs(point.plan),
            point.status.value,
        ]
        for point in front.points
    ]
    headings = [
        ("time", True),
        ("USD", True),
        ("GPUs", False),
        ("layers", False),
        ("status", False),
    ]
    yield rich_table(headings, rows)
    whole = "all of them, proved" if front.stop is Stop.PROVED else "perhaps not all"
    yield Text(f"{len(rows)} plans: {whole}", style="dim")


def beside(found: Tradeoffs) -> Iterator[RenderableType]:
    """What planners found at deadlines along the front, where any were asked."""
    front = found.of(FRONT)
    rows = []
    for point in found.points:
        if point.asked_s is None:
            continue
        best = min(p.usd for p in front if p.total_s <= point.asked_s)
        rows.append(
            [
                point.method,
                words.duration(point.asked_s),
                words.duration(point.total_s),
                words.number(point.usd),
                words.share(point.usd / best - 1 if best else None),
                " + ".join(f"{n} × {g}" for g, n in point.rented.items()),
            ]
        )
    rows += [
        [miss.method, words.duration(miss.asked_s), words.NONE, "", "", "no plan"]
        for miss in found.failed
    ]
    headings = [
        ("planner", False),
        ("deadline", True),
        ("time", True),
        ("USD", True),
        ("above front", True),
        ("GPUs", False),
    ]
    if rows:
        yield rich_table(headings, rows)


def _runs(plan: Provisioning) -> str:
    """Layers of the stages in order, once a run of one GPU type: `A30: 4 5, ...`."""
    runs = groupby(plan.stages, lambda stage: stage.gpu)
    return ", ".join(
        f"{gpu}: {' '.join(str(stage.layers) for stage in run)}" for gpu, run in runs
    )


def _hired(parts: dict[str, Any]) -> list[tuple[str, int]]:
    return sorted(parts["rented"].items())


def named(entries: Iterable[dict[str, str]]) -> RenderableType:
    """Names and what they stand for."""
    table = Table.grid(padding=(0, 2))
    for entry in entries:
        description = words.plain(entry["description"])
        which = [Text(entry["direction"])] if "direction" in entry else []
        if own := entry.get("options"):
            description += f"\n  {own}"
        table.add_row(Text(entry["name"], style="bold"), *which, Text(description))
    return table


# --- what is known ---------------------------------------------------------------


def _known(result: Result) -> Iterator[tuple[str, str]]:
    from ..problems import get

    unit = get(result.problem).unit(result.data)
    method = result.method
    by = [method.name, method.kind, method.formulation, method.backend]
    by += [f"{name}={value}" for name, value in method.options.items()]
    yield "status", f"{result.status.value} ({_stop(result)})"
    yield "method", ", ".join(dict.fromkeys(word for word in by if word))
    if result.objective is not None:
        yield "objective", words.amount(result.objective, unit)
    if result.bound is not None:
        value = words.amount(result.bound.value, unit)
        yield "bound", f"{value} ({result.bound.source})"
    if result.gap is not None:
        yield "gap", words.share(result.gap)
    if result.seconds:
        yield "planning", words.duration(sum(result.seconds.values()))
    for reason in result.reasons:
        yield "reason", reason
    for failure in result.failed:
        if failure not in result.reasons:
            yield "a bug", failure


def _stop(result: Result) -> str:
    return {
        "proved": "proved",
        "time": "time limit reached",
        "gap": "gap target reached",
        "memory": "memory limit reached",
        "interrupted": "interrupted",
        "finished": "finished",
    }[result.stop.value]


def _totals(parts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The judge's totals, whichever problem they are of."""
    shown: dict[str, tuple[str, Callable[[Any], str]]] = {
        "iteration_us": ("iteration", lambda v: words.amount(v, "us")),
        "recovery_us": ("recovery", lambda v: words.amount(v, "us")),
        "bytes": ("bytes", _ways),
        "sync_us": ("synchronisation", lambda v: words.amount(v, "us")),
        "tokens_per_second": ("tokens a second", lambda v: f"{v:,.0f}"),
        "mfu": ("MFU", lambda v: f"{v:.1%}"),
        "hfu": ("HFU", lambda v: f"{v:.1%}"),
        "total_s": ("all iterations", words.duration),
        "average_completion_s": ("average completion", words.duration),
        "longest_completion_s": ("longest completion", words.duration),
        "makespan_s": ("makespan", words.duration),
        "trials": ("trials out of memory", str),
        "usd": ("cost", lambda v: f"{words.number(v)} USD"),
        "usd_per_hour": ("price", lambda v: f"{v:,.2f} USD an hour"),
        "rented": ("to rent", lambda v: " + ".join(f"{n} × {g}" for g, n in v.items())),
        "deadline_slack_s": ("slack to the deadline", words.duration),
        "budget_slack_usd": ("left of the budget", lambda v: f"{words.number(v)} USD"),
        "usd_per_iteration": ("cost", lambda v: f"{words.number(v)} USD an iteration"),
        "least_headroom_mib": ("memory headroom", words.memory),
        "links": ("within nodes", _within_nodes),
        "least_effective_gflops": ("weakest group", lambda v: f"{v:,.0f} GFLOP/s"),
        "most_effective_gflops": ("strongest group", lambda v: f"{v:,.0f} GFLOP/s"),
    }
    for key, (heading, text) in shown.items():
        if parts.get(key) is not None:
            yield heading, text(parts[key])


def _ways(sizes: dict[str, int]) -> str:
    """Where a recovery's bytes come from: '12.00 GB local, 0 peer, 3.00 GB cloud'."""
    return ", ".join(f"{words.size(size)} {way}" for way, size in sizes.items())


def _within_nodes(links: dict[str, dict[str, int]]) -> str:
    """What the links within nodes carry: '4 of 4 groups, 0 of 7 hops'."""
    nouns = {
        "tensor_parallel": "tensor-parallel groups",
        "synchronisation": "gradient pairs",
        "hops": "hops",
    }
    counts = [(v["intra"], v["intra"] + v["inter"], nouns[k]) for k, v in links.items()]
    some = [f"{near} of {all_} {noun}" for near, all_, noun in counts if all_]
    return ", ".join(some) or "nothing to carry"


# --- plans -----------------------------------------------------------------------


def _rule(stage: Stage) -> str:
    """The stage's own rule of recomputation, where it chose one."""
    return f", recompute {stage.recompute}" if stage.recompute else ""


def _planrich_table(data: Any, plan: Plan, parts: dict[str, Any]) -> Table | None:
    if isinstance(plan, TrainingPlan):
        return _trainingrich_table(data, plan, parts) if "stages" in parts else None
    if isinstance(plan, Grouping):
        rows = [
            [str(g.copies), ", ".join(f"{n} × {t}" for t, n in g.gpus.items())]
            for g in plan.groups
        ]
        return rich_table([("groups", True), ("devices of each", False)], rows)
    if isinstance(plan, Recovery):
        return _linkrich_table(parts) if "carried" in parts else None
    times = parts.get("stage_us")
    if times is None:
        return None
    if isinstance(plan, Partition):
        return _stagerich_table(plan.order, plan.layers, times)
    if isinstance(plan, Provisioning):
        return _rentedrich_table(plan, times, parts["headroom_mib"])
    return None


def _rentedrich_table(
    plan: Provisioning, times: Iterable[int], headroom: Iterable[int]
) -> Table:
    """A row for each stage: GPUs, layers, time of a micro-batch, memory left."""
    rows = [
        [
            f"{plan.data_parallel} × {stage.gpu}",
            str(stage.layers),
            words.amount(us, "us"),
            words.memory(mib),
        ]
        for stage, us, mib in zip(plan.stages, times, headroom, strict=True)
    ]
    headings = [("stage", False), ("layers", True), ("time", True), ("headroom", True)]
    return rich_table(headings, rows)


def _linkrich_table(parts: dict[str, Any]) -> Table:
    """A row for each link, busiest first, with its share of the busiest one's time."""
    rows = sorted(parts["carried"].items(), key=lambda row: -row[1]["us"])
    most = max(1, parts["recovery_us"])
    cells = [
        [
            name,
            words.size(row["bytes"]),
            words.amount(row["us"], "us"),
            words.share(row["us"] / most),
        ]
        for name, row in rows[:MOST_LINKS]
    ]
    if more := rows[MOST_LINKS:]:
        cells.append([f"and {len(more)} more", "", "", ""])
    headings = [("link", False), ("bytes", True), ("time", True), ("of busiest", True)]
    return rich_table(headings, cells)


def _stagerich_table(
    names: Iterable[str], layers: Iterable[int], times: Iterable[int]
) -> Table:
    rows = [
        [name, str(count), words.amount(us, "us")]
        for name, count, us in zip(names, layers, times, strict=True)
    ]
    return rich_table([("stage", False), ("layers", True), ("time", True)], rows)


def _trainingrich_table(
    instance: Instance, plan: TrainingPlan, parts: dict[str, Any]
) -> Table:
    """A row for each stage: layers, GPUs, compute and hop, memory and headroom."""
    cluster = instance.planned_cluster
    rows: list[list[str]] = []
    for number, (pipeline, timed) in enumerate(
        zip(plan.pipelines, parts["stages"], strict=True)
    ):
        whole = words.amount(parts["pipeline_us"][number], "us")
        batches = f"{pipeline.micro_batches} × {pipeline.micro_batch_size}"
        for j, (stage, row) in enumerate(zip(pipeline.stages, timed, strict=True)):
            need, headroom = _memory(stage, cluster, parts["peak_memory_mib"])
            rows.append(
                [
                    str(number) if j == 0 else "",
                    batches if j == 0 else "",
                    whole if j == 0 else "",
                    words.layers_of(stage),
                    words.gpus_of(stage, cluster) + _rule(stage),
                    words.amount(row["compute_us"], "us"),
                    words.amount(row["hop_us"], "us"),
                    words.memory(need),
                    words.memory(headroom),
                ]
            )
    headings = [
        ("pipeline", True),
        ("micro-batches", True),
        ("time", True),
        ("layers", True),
        ("GPUs", False),
        ("compute", True),
        ("hop", True),
        ("memory", True),
        ("headroom", True),
    ]
    return rich_table(headings, rows)


def _memory(
    stage: Stage, cluster: Cluster, peak_mib: dict[str, int]
) -> tuple[int, int]:
    """Need and headroom of the stage's fullest GPU, in MiB."""

    def room(node: str) -> int:
        gpu = cluster.gpus[cluster.node[node].gpu]
        return int(exact(gpu.memory_gib) * 1024)

    pairs = [
        (peak_mib[replica.gpus[0]], room(replica.node)) for replica in stage.replicas
    ]
    need, most = min(pairs, key=lambda pair: pair[1] - pair[0])
    return need, most - need


# --- drawing ---------------------------------------------------------------------


def rich_table(headings: list[tuple[str, bool]], rows: Iterable[list[str]]) -> Table:
    """A table for a terminal: headings, and whether a column holds numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, numeric in headings:
        table.add_column(
            "\n".join(wrap(heading, 10)),  # so that a gap report fits on 80 columns
            justify="right" if numeric else "left",
            no_wrap=numeric,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(Text(words.plain(cell)) for cell in row))
    return table


def facts_table(pairs: Iterable[tuple[str, str]]) -> Table:
    """Pairs of a name and what is known, one a line."""
    grid = Table.grid(padding=(0, 2))
    for heading, text in pairs:
        grid.add_row(Text(heading, style="dim"), Text(words.plain(text)))
    return grid
