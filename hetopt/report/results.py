"""Results and judgements: what is known, and the plan in a table."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from ..api import margins
from ..api.nodes import NodeChoice
from ..costs.formulas.memory import fit
from ..plans import (
    Grouping,
    Partition,
    Plan,
    PostTraining,
    Provisioning,
    Recovery,
    Replica,
    Round,
    Stage,
    TrainingPlan,
)
from ..problems import Evaluation, Objective, Violation
from ..problems.provisioning import Offer
from ..problems.training_plan.shapes import split_of
from ..result import Bound, Proof, Result, Status, Stop, known_gap
from ..schema import Cluster, Instance, exact
from ..text.documents import Document
from . import plans, words
from .runs import runs_of, sets
from .sheet import Section, Sheet, Table

MOST_LINKS = 12  # of a recovery, in its table
MOST_PLACES = 4  # that one line names for a rule that is broken
_CHECKED_BY = {
    Proof.CERTIFICATE: "with a certificate that other code follows",
    Proof.STATEMENT: "by a statement on another solver",
    Proof.METHOD: "by this method only",
    Proof.CLAIM: "as the plan file says; `hetopt check --bound` derives it again",
}
_STOPS = {
    "time": "time limit reached",
    "gap": "gap target reached",
    "memory": "memory limit reached",
}


def sheet(
    result: Result,
    facts: Iterable[tuple[str, str]] = (),
    sections: Iterable[Section] = (),
) -> Sheet:
    """Return what is known of a result, and its plan, with further facts."""
    answers = dict.fromkeys(("training_plan", "post_training"), answer)
    answers["provisioning"] = _rented
    told, parts = [*known(result)], list[Section]()
    if result.plan is not None and result.evaluation is not None:
        told += totals(result.parts)
        if isinstance(result.plan, TrainingPlan) and "stages" in result.parts:
            drawn, note = (plans.figure(result, "The plan"),), (plans.NOTE,)
            parts.append(Section("The plan", note, figures=drawn, on_page_only=True))
        parts += judged(result.data, result.plan, result.evaluation)
    name = str(getattr(result.data, "name", result.problem))
    say = answers.get(result.problem, lambda _: "")
    return Sheet(name, (*parts, *sections), "plan", (*told, *facts), say(result))


def chosen(found: NodeChoice) -> Sheet:
    """Return the plan on the best set of nodes, and the other sets."""
    return sheet(found.result, sections=sets(found))


def answer(result: Result) -> str:
    """Return in a sentence how long the best plan takes, and how much is proved."""
    if result.objective is None:
        if result.status is Status.INFEASIBLE:
            return f"No plan is possible (proved): {'; '.join(result.reasons)}."
        return "No plan was found, nor a proof that there is none."
    begin, each = "The", "iteration"
    if isinstance(result.plan, PostTraining):
        begin, each = f"{where(result)}: the", "step"
    takes = f"takes {words.amount(result.objective, 'us')} per {each}"
    found, then = ("", ":") if result.status is Status.OPTIMAL else (" found", ";")
    far = distance(result.objective, result.bound)
    return f"{begin} best plan{found} {takes}{then} {far}."


def _rented(result: Result) -> str:
    """Return what to rent, for how long and for how much, in one sentence."""
    if result.evaluation is None:
        proved = result.status is Status.INFEASIBLE
        none = "No plan on these offers is within the limits (proved)."
        return none if proved else "No plan was found in time."
    parts = result.parts
    time, usd = words.duration(parts["total_s"]), words.number(parts["usd"])
    said = f"Rent {words.machines(parts['machines'])} for {time}: {usd} USD"
    if (slack := parts.get("deadline_slack_s")) is not None:
        said += f", {words.duration(slack)} before the deadline"
    if (left := parts.get("budget_slack_usd")) is not None:
        said += f", {words.number(left)} USD below the budget"
    if result.status is Status.OPTIMAL:
        return f"{said}; no plan on these offers is better (proved)."
    if result.gap is not None:
        return f"{said}; at most {words.share(result.gap)} above the best (proved)."
    return f"{said}; its distance from the best is unknown."


def proof(bound: Bound) -> str:
    """Return what a bound can be checked by."""
    return _CHECKED_BY[bound.proof]


def distance(us: Objective, bound: Bound | None) -> str:
    """Say how far from optimal a plan is at most, and by which bound in us."""
    if bound is None:
        return "its distance from the best is unknown"
    least, known = words.amount(bound.value, "us"), proof(bound)
    proved = known if bound.claimed else f"proved, {known}"
    if bound.value == us:
        return f"no plan is faster ({proved})"
    gap = words.share(known_gap(us, bound.value))
    said = f"no plan takes less than {least} ({proved})"
    return f"{said}, so it is at most {gap} from optimal"


def where(result: Result) -> str:
    """Say which GPUs train, and which generate in how many engines."""
    plan: Any = result.plan
    by_node = plan.trains.gpus_by_node, plan.engine_gpus_by_node
    trains, serves = (_cards(result.data.instance, gpus) for gpus in by_node)
    sizes = ((len(part.gpus) // part.degree, part.degree) for part in plan.engines)
    engines = " and ".join(f"{words.counted(n, 'engine')} of TP {d}" for n, d in sizes)
    turn = " in turn" * (plan.shared is not None)
    return f"Train on {trains}, generate{turn} on {serves} in {engines}"


def _cards(instance: Instance, gpus: Counter[str]) -> str:
    """Count GPUs, so many of each node, by their card."""
    used = Counter(instance.planned_cluster.node[x].gpu for x in gpus.elements())
    return ", ".join(f"{n} × {card}" for card, n in used.items())


def judged(data: Any, plan: Plan, found: Evaluation) -> Iterator[Section]:
    """Yield the plan with its times and memory, what is tight, and broken rules."""
    if (rows := table(data, plan, found.parts)) is not None:
        yield Section(table=rows)
    if isinstance(plan, PostTraining) and "training" in found.parts:
        stages = _stages(data.instance, plan.trains, found.parts["training"])
        yield Section("Training", table=stages)
    warned = margins.warnings(data, found) if isinstance(plan, TrainingPlan) else ()
    cards = found.parts.get("not_calibrated_here", ())
    told = "no row of decoding was measured there, so data sheets give their times"
    new = (f"not calibrated here: engines on {card}: {told}" for card in cards)
    points = [*(f"warning: {x}" for x in warned), *problems(found.violations), *new]
    if isinstance(plan, TrainingPlan) and data.cluster is not None:
        there = Counter({x.name: x.count for x in data.cluster.nodes})
        if idle := _cards(data, there - plan.gpus_by_node):
            points.append(f"left idle: {idle}")
    if points:
        yield Section(points=tuple(points))


def problems(violations: Iterable[Violation]) -> list[str]:
    """Return a line for each fault, with all places that have it.

    A fault of one stage is found again on every GPU and in every equal pipeline.
    """
    places: dict[tuple[str, str], list[str]] = {}
    for one in violations:
        places.setdefault((one.rule, one.by), []).append(one.where)
    lines = []
    for (rule, by), where in places.items():
        more = len(where) - MOST_PLACES
        listed = ", ".join(where[:MOST_PLACES]) + f" and {more} more" * (more > 0)
        lines.append(f"breaks {rule}: {listed}: {by}")
    return lines


# --- what is known ---------------------------------------------------------------


def known(result: Result) -> Iterator[tuple[str, str]]:
    """Yield status, method, objective, bound and gap, as far as they are known."""
    from ..problems import get

    unit = get(result.problem).unit(result.data)
    method = result.method
    by = [method.name, method.kind, method.formulation, method.backend]
    by += [f"{name}={value}" for name, value in method.options.items()]
    yield "status", f"{result.status.value} ({_stop_text(result)})"
    yield "method", ", ".join(dict.fromkeys(word for word in by if word))
    if result.objective is not None:
        yield "objective", words.amount(result.objective, unit)
    if result.bound is not None:
        value = words.amount(result.bound.value, unit)
        if unit == "us" and isinstance(result.data, Instance) and result.bound.value:
            work = result.data.workload
            tokens = work.global_batch * work.sequence_length / result.bound.value
            value += f", at most {tokens * 1e6:,.0f} tokens/s"
        yield "bound", f"{value} ({result.bound.source})"
        if result.problem != "training_plan":  # whose sentence has it
            yield "proof", proof(result.bound)
    if result.gap is not None:
        yield "gap", words.share(result.gap)
    if result.started_from is not None:
        yield "started from", result.started_from
    if result.seconds:
        yield "planning", words.duration(sum(result.seconds.values()))
    for reason in result.reasons:
        yield "reason", reason
    for failure in result.failed:
        if failure not in result.reasons:
            yield "failed", failure


def _stop_text(result: Result) -> str:
    """Why the work ended, and of whose work that is said."""
    if result.stop is Stop.TIME and result.method.work is not None:
        return f"{result.method.work:,} units of work done"
    if result.stop is not Stop.FINISHED:
        return _STOPS.get(result.stop.value, result.stop.value)
    # What the planners took is told where all of them were asked.
    every = "planners" in result.seconds
    told = f"{'every planner' if every else result.method.name} finished"
    if every and result.gap:
        told += f"; the search stopped at a gap of {words.share(result.gap)}"
    return told


def totals(parts: Document) -> Iterator[tuple[str, str]]:
    """The judge's totals, whichever problem they are of."""
    shown: dict[str, tuple[str, Callable[[Any], str]]] = {
        "iteration_us": ("iteration", lambda v: words.amount(v, "us")),
        "step_us": ("step", lambda v: words.amount(v, "us")),
        "recovery_us": ("recovery", lambda v: words.amount(v, "us")),
        "bytes": (
            "bytes",
            lambda v: ", ".join(f"{words.size(size)} {way}" for way, size in v.items()),
        ),
        "divided": ("sharded", _sharding_text),
        "sync_us": ("synchronisation", lambda v: words.amount(v, "us")),
        "tied_us": ("tied embeddings", _time_if_any),
        "update_us": ("optimiser", _time_if_any),
        "overhead_us": ("overhead", _time_if_any),
        "ports": ("busiest ports", words.ports),
        "tokens_per_second": ("tokens per second", lambda v: f"{v:,.0f}"),
        "mfu": ("MFU", lambda v: f"{v:.1%}"),
        "hfu": ("HFU", lambda v: f"{v:.1%}"),
        "chosen": ("chosen", words.chosen),
        "total_s": ("all iterations", words.duration),
        "losses_factor": ("of which for losses", lambda v: f"{1 - 1 / v:.1%}"),
        "average_completion_s": ("average completion", words.duration),
        "longest_completion_s": ("longest completion", words.duration),
        "makespan_s": ("makespan", words.duration),
        "trials": ("trials out of memory", str),
        "usd": ("cost", lambda v: f"{words.number(v)} USD"),
        "usd_per_hour": ("price", lambda v: f"{v:,.2f} USD per hour"),
        "machines": ("to rent", words.machines),
        "deadline_slack_s": ("slack to the deadline", words.duration),
        "budget_slack_usd": ("left of the budget", lambda v: f"{words.number(v)} USD"),
        "usd_per_iteration": ("cost per iteration", lambda v: f"{words.number(v)} USD"),
        "least_headroom_mib": ("memory headroom", words.memory),
        "oom_probability": (
            "runs out of memory",
            lambda v: f"{v:.0%} likely ({fit(v)})",
        ),
        "loading_mib": ("dies while it loads", words.loading),
        "least_effective_gflops": ("weakest group", lambda v: f"{v:,.0f} GFLOP/s"),
        "most_effective_gflops": ("strongest group", lambda v: f"{v:,.0f} GFLOP/s"),
    }
    for key, (heading, text) in shown.items():
        if parts.get(key) is not None and (said := text(parts[key])):
            yield heading, said
        if key == "iteration_us" and (expected := words.interval_of(parts)):
            yield "80% interval", expected


def _time_if_any(us: int) -> str:
    """Return a part of an iteration; nothing where it takes no time."""
    return words.amount(us, "us") if us else ""


_SHARDED_BY_ZERO = {
    1: "optimiser states (ZeRO-1)",
    2: "optimiser states and gradients (ZeRO-2)",
    3: "optimiser states, gradients and weights (ZeRO-3)",
}


def _sharding_text(degrees: dict[str, int]) -> str:
    """Return what replicas and groups share, and how many stages a GPU has."""
    groups, several = degrees.get("groups", 0), {k for k, v in degrees.items() if v > 1}
    parts = [
        (degrees["zero"], _SHARDED_BY_ZERO.get(degrees["zero"], "")),
        (groups, f"in {groups} groups of replicas"),
        ("context" in several, f"sequences over {degrees['context']} GPUs"),
        ("experts" in several, f"experts over {degrees['experts']} GPUs"),
        (
            "interleave" in several,
            f"{degrees['interleave']} virtual stages per GPU (interleaved)",
        ),
    ]
    return ", ".join(text for there, text in parts if there)


# --- plans -----------------------------------------------------------------------


def table(data: Any, plan: Plan, parts: Document) -> Table | None:
    """A row for each stage, group or link; None where the judge could not time it."""
    if isinstance(plan, TrainingPlan):
        return _stages(data, plan, parts) if "stages" in parts else None
    if isinstance(plan, Grouping):
        gpus = (", ".join(f"{n} × {t}" for t, n in g.gpus.items()) for g in plan.groups)
        alike = zip((str(g.copies) for g in plan.groups), gpus, strict=True)
        heads = ("groups", "devices of each")
        return Table.of(heads, alike, texts=heads[1:])
    if isinstance(plan, Recovery):
        return _links(parts) if "carried" in parts else None
    if isinstance(plan, PostTraining):
        return _halves(data.instance, plan, parts) if "engines" in parts else None
    if isinstance(plan, Round):
        done = [(x.job_class, str(x.jobs), f"{x.gpus} × {x.gpu}") for x in plan.served]
        return Table.of(("jobs of", "served", "on each"), done, texts=("on each",))
    times = parts.get("stage_us")
    if times is None:
        return None
    if isinstance(plan, Partition):
        layers = zip(plan.order, plan.layers, times, strict=True)
        cells = ((name, str(n), words.amount(us, "us")) for name, n, us in layers)
        return Table.of(("stage", "layers", "time"), cells)
    if isinstance(plan, Provisioning):
        many, of = plan.data_parallel, {offer.gpu: offer for offer in data.offers}
        on = (words.plain(_gpus(many, of[x.gpu])) for x in plan.stages)
        held = (str(stage.layers) for stage in plan.stages)
        us = (words.amount(us, "us") for us in times)
        rows = zip(on, held, us, map(words.memory, parts["headroom_mib"]), strict=True)
        return Table.of(("stage", "layers", "time", "headroom"), rows)
    return None


def _halves(instance: Instance, plan: PostTraining, parts: Document) -> Table:
    """A row for each part of a step, and for the engines of each kind."""
    nodes = instance.planned_cluster.node
    kinds: dict[tuple[int, str], list[Document]] = {}
    for row in parts["engines"]:
        card = nodes[row["gpus"][0].rpartition(":")[0]].gpu
        kinds.setdefault((len(row["gpus"]), card), []).append(row)
    rows = []
    for (degree, card), alike in kinds.items():
        size, done = len(alike), sum(row["answers"] for row in alike)
        on = f"{words.counted(size, 'engine')} of {degree} × {card}"
        longest = max(row["us"] for row in alike)
        rows.append(("generates", on, f"{done:,}", words.amount(longest, "us")))
    trains = _cards(instance, plan.trains.gpus_by_node)
    total = f"{sum(row['answers'] for row in parts['engines']):,}"
    for what, on, answers, key in (
        ("scores", trains, total, "scoring_us"),
        ("trains", trains, total, "training_us"),
        ("sends weights", "to the engines", "", "sent_us"),
        ("switches", "all, in turn", "", "switch_us"),
    ):
        if us := parts[key]:
            rows.append((what, on, answers, words.amount(us, "us")))
    return Table.of(("part", "on", "answers", "time"), rows, texts=("part", "on"))


def _gpus(count: int, offer: Offer) -> str:
    """GPUs of a stage, and of which machines they are."""
    at = f" at {offer.place}" if offer.place else ""
    if offer.gpus_per_instance == 1:
        return f"{count} × {offer.card}{at}"
    return f"{count} × {offer.card}, of machines of {offer.gpus_per_instance}{at}"


def _links(parts: Document) -> Table:
    """A row for each link, busiest first, with its share of the busiest one's time."""
    rows = sorted(parts["carried"].items(), key=lambda row: -row[1]["us"])
    most = max(1, parts["recovery_us"])
    cells = []
    for name, row in rows[:MOST_LINKS]:
        size, us = words.size(row["bytes"]), words.amount(row["us"], "us")
        cells.append((name, size, us, words.share(row["us"] / most)))
    if more := rows[MOST_LINKS:]:
        cells.append((f"and {len(more)} more", "", "", ""))
    return Table.of(("link", "bytes", "time", "of busiest"), cells)


@dataclass(frozen=True)
class _Shown:
    """A stage as its row says it, apart from which layers and which nodes it is on."""

    held: int  # layers
    groups: tuple[tuple[int, str], ...]  # degree and type of each
    spread: tuple[int, ...]  # groups on each node, without its name
    rule: str
    cells: tuple[str, ...]


def _stages(instance: Instance, plan: TrainingPlan, parts: Document) -> Table:
    """A row for each stage: layers, GPUs, compute and hop, memory and headroom.

    Pipelines whose rows are equal but for the nodes are shown once, and so are such
    stages that follow each other.
    """
    cluster = instance.planned_cluster
    interleave = split_of(instance, plan).interleave
    alike: dict[tuple[str, str, tuple[_Shown, ...]], list[int]] = {}
    for number, pipeline in enumerate(plan.pipelines):
        shown = tuple(
            _stage_row(stage, row, cluster, parts)
            for stage, row in zip(pipeline.stages, parts["stages"][number], strict=True)
        )
        whole = words.amount(parts["pipeline_us"][number], "us")
        batches = f"{pipeline.micro_batches} × {pipeline.micro_batch_size}"
        alike.setdefault((batches, whole, shown), []).append(number)
    rows: list[tuple[str, ...]] = []
    for (batches, whole, shown), numbers in alike.items():
        first = (words.numbered(numbers), batches, whole)
        pipelines = [plan.pipelines[number] for number in numbers]
        held = pipelines[0].held(interleave)
        for _, run in groupby(range(len(shown)), shown.__getitem__):
            of_run = [*run]
            stages = [p.stages[j] for p in pipelines for j in of_run]
            row, beside = shown[of_run[0]], ("", "", "") if of_run[0] else first
            layers = _layers(held[of_run[0] : of_run[-1] + 1])
            rows.append((*beside, layers, _on(stages, row, cluster), *row.cells))
    headings = ("pipeline", "micro-batches", "time", "layers", "GPUs", "compute")
    last = ("transfer", "memory", "headroom")
    return Table.of((*headings, *last), rows, texts=("GPUs",))


def _stage_row(
    stage: Stage, row: dict[str, int], cluster: Cluster, parts: Document
) -> _Shown:
    peak_mib: dict[str, int] = parts["peak_memory_mib"]

    def headroom(replica: Replica) -> int:
        gpu = cluster.gpus[cluster.node[replica.node].gpu]
        return int(exact(gpu.memory_gib) * 1024) - peak_mib[replica.gpus[0]]

    fullest = min(stage.replicas, key=headroom)
    memory = map(words.memory, (peak_mib[fullest.gpus[0]], headroom(fullest)))
    times = (words.amount(row[part], "us") for part in ("compute_us", "hop_us"))
    groups = ((r.degree, cluster.node[r.node].gpu) for r in stage.replicas)
    return _Shown(
        held=len(stage.span),
        groups=tuple(groups),
        spread=tuple(sorted(Counter(r.node for r in stage.replicas).values())),
        rule=f", recompute {stage.recompute}" if stage.recompute else "",
        cells=(*times, *memory),
    )


def _layers(stages: Sequence[tuple[range, ...]]) -> str:
    """Layers of a stage, or of several of as many each: `0–11 (3 × 4)`."""
    runs = zip(stages[0], stages[-1], strict=True)
    whole = words.layers(range(first.start, last.stop) for first, last in runs)
    each = sum(map(len, stages[0]))
    return f"{whole} ({len(stages)} × {each})" if len(stages) > 1 else whole


def _on(stages: Sequence[Stage], shown: _Shown, cluster: Cluster) -> str:
    """The groups of one of equal stages, and the nodes of all."""
    if len(stages) == 1:
        return words.gpus_of(stages[0], cluster) + shown.rule
    nodes = dict.fromkeys(r.node for stage in stages for r in stage.replicas)
    texts = Counter(f"{degree} × {gpu}" for degree, gpu in shown.groups)
    groups = ", ".join(x if n == 1 else f"{n} × ({x})" for x, n in texts.items())
    on = ", ".join(runs_of(nodes))
    return words.plain(f"{groups} each, on {on}") + shown.rule
