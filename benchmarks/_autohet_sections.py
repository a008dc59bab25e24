"""The sections of `autohet.py`: each yields the rows of one table."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import combinations, pairwise
from statistics import mean
from time import perf_counter
from typing import Any

from hetopt import Limits, Status
from hetopt.exact import training_plan as exact
from hetopt.files import best, load_instance
from hetopt.planners import autohet, megatron, whale
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.device_grouping import Data
from hetopt.result import Result
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost
from hetopt.search.symmetric import measured

Row = dict[str, Any]
PAIRS = ("h800-a100", "a100-h20")
UNEQUAL = ("4-a100-2-h800", "5-a100-3-h800", "3-a100-5-h800", "1-a100-4-h20")
FAMILIES: dict[str, tuple[list[str], float, float | None]] = {
    # settings, the paper's average over Megatron-LM, and over Whale
    "BERT-Large, equal numbers": (
        [f"{pair}-{n}x{n}-bert-large" for pair in PAIRS for n in (2, 4, 8)],
        1.38,
        None,
    ),
    "GPT-3 6.7B, equal numbers": (
        [f"{pair}-{n}x{n}-gpt3-6.7b" for pair in PAIRS for n in (2, 4, 8)],
        1.53,
        1.27,
    ),
    "LLaMA 6.7B, A100 + H800": ([f"{n}-llama-6.7b" for n in UNEQUAL[:3]], 1.79, 1.51),
    "LLaMA 6.7B, A100 + H20": ([f"{n}-llama-6.7b" for n in UNEQUAL[3:]], 1.44, 1.16),
}
# The groups that the paper's text names: setting, tensor-parallel degree, groups.
NAMED: tuple[tuple[str, int, list[dict[str, int]]], ...] = (
    ("4-a100-2-h800-llama-6.7b", 2, [{"H800": 1}, {"A100": 2}]),
    ("1-a100-4-h20-llama-6.7b", 1, [{"A100": 1, "H20": 1}, {"H20": 3}]),
)
STEPS: dict[str, dict[str, bool]] = {
    "one pipeline": {"grouping": False, "mapping": False, "balancing": False},
    "grouping": {"mapping": False, "balancing": False},
    "+ mapping": {"balancing": False},
    "+ balancing": {},
}
PAPER_STEPS = (1.0, 1.11, 1.16, 1.79)
PAPER_PLANNING_S = {16: 1.23, 24: 5.72, 32: 16.96, 64: 159.12}
LITERAL = 12  # devices up to which the paper's statement is tried
KS = (4, 8, 16, 32, 64, 128)
FIXED_K = 16  # micro-batches of a group; the paper's number is not published


@cache
def shipped(name: str) -> Instance:
    """An instance of the library."""
    return load_instance(f"autohet/{name}")


def seconds(instance: Instance, plan: Any) -> float:
    """Iteration time of a plan, as the judge has it."""
    judged = judge.evaluate(instance, plan)
    if not judged.valid or judged.objective is None:
        raise SystemExit(f"{instance.name}: a plan breaks rules: {judged.violations}")
    return float(judged.objective) / 1e6


def shape(plan: TrainingPlan) -> str:
    """Pipelines, their stages, degrees; replicas a stage where there are several."""
    stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
    parts = {
        "stages": {len(pipeline.stages) for pipeline in plan.pipelines},
        "replicas": {len(stage.replicas) for stage in stages} - {1},
        "tp": {replica.degree for replica in plan.replicas()},
    }
    words = [
        f"{'-'.join(map(str, sorted(found)))} {name}"
        for name, found in parts.items()
        if found
    ]
    return f"{len(plan.pipelines)} x {', '.join(words)}"


def links(plan: TrainingPlan) -> Row:
    """What of the plan's traffic stays within nodes.

    Of two replicas that hold a layer, which synchronise, and of neighbouring stages; a
    tensor-parallel group always does.
    """
    stages = [stage for each in plan.pipelines for stage in each.stages]
    nodes = {stage: [replica.node for replica in stage.replicas] for stage in stages}
    holders = defaultdict[int, list[str]](list)
    for stage in stages:
        for layer in stage.span:
            holders[layer] += nodes[stage]
    pairs = [a == b for each in holders.values() for a, b in combinations(each, 2)]
    neighbours = (pair for each in plan.pipelines for pair in pairwise(each.stages))
    hops = [not {*nodes[a]}.isdisjoint(nodes[b]) for a, b in neighbours]
    groups = [True for replica in plan.replicas() if replica.degree > 1]
    counts = {"groups": groups, "pairs": pairs, "hops": hops}
    return {f"{x} in nodes": f"{sum(y)} of {len(y)}" for x, y in counts.items()}


# --- sections --------------------------------------------------------------------


def gpus(limit: float) -> Iterator[Row]:
    """GPUs and links of all settings."""
    cluster = shipped("three-types-24-gpt3-6.7b").planned_cluster
    for node in cluster.nodes:
        gpu = cluster.gpus[node.gpu]
        yield {
            "GPU": node.gpu,
            "peak, TFLOPS": f"{gpu.peak_tflops:g}",
            "memory, GB": f"{gpu.memory_gib:g}",
            "NVLink, GB/s": f"{node.intra_gbytes_per_s:g}",
            "between nodes, GB/s": f"{cluster.inter.gbytes_per_s:g}",
        }


def models(limit: float) -> Iterator[Row]:
    """Models and batches of all settings."""
    for names, *_ in list(FAMILIES.values())[:3]:
        instance = shipped(names[0])
        model, workload = instance.model, instance.workload
        yield {
            "model": model.name,
            "layers": model.layers,
            "hidden": model.hidden,
            "sequence": workload.sequence_length,
            "global batch": workload.global_batch,
            "micro-batches": ", ".join(map(str, workload.micro_batch_sizes)),
        }


@cache
def plans(name: str, batch: int | None = None) -> dict[str, tuple[float, TrainingPlan]]:
    """Seconds and plans of AutoHet and its baselines; `batch` is a global batch."""
    instance = shipped(name)
    if batch is not None:
        workload = instance.workload.model_copy(update={"global_batch": batch})
        instance = instance.model_copy(update={"workload": workload})
    found = {
        "megatron": megatron.plan(instance),
        "whale": whale.plan(instance),
        "whale, equal layers": whale.plan(instance, equal_layers=True),
        "autohet": autohet.plan(instance),
        f"autohet, K = {FIXED_K}": autohet.plan(instance, micro_batches=FIXED_K),
    }
    return {who: (seconds(instance, plan), plan) for who, plan in found.items()}


@cache
def solved(name: str, limit: float) -> Result:
    """The exact method's result, from AutoHet's plan on."""
    start = plans(name)["autohet"][1]
    limits = Limits(time_s=limit)
    result = exact.solve(shipped(name), limits=limits, warm_start=start)
    if result.objective is None or result.bound is None:
        raise SystemExit(f"{name}: the exact method ended without a bound")
    return result


def bound_s(name: str) -> float:
    """Seconds that no plan is faster than, as far as the library knows."""
    known = best.known(f"autohet/{name}")
    if known is None or (bound := known.value("bound")) is None:
        raise SystemExit(f"{name}: no bound is kept beside the instance")
    return float(bound) / 1e6


def speed_ups(limit: float) -> Iterator[Row]:
    """Fig. 7 and 8: iteration times, the best plan known, and a proved bound."""
    for names, *_ in FAMILIES.values():
        for name in names:
            found, result = plans(name), solved(name, limit)
            took, own = found["autohet"]
            bound = float(result.bound.value) / 1e6
            yield {
                "setting": name,
                **{f"{who}, s": took for who, (took, _) in found.items()},
                "best known, s": seconds(shipped(name), result.plan),
                "no plan is faster than, s": bound,
                "optimum proved": "yes" if result.status is Status.OPTIMAL else "no",
                "autohet's gap to the bound, %": 100 * (took / bound - 1),
                "autohet's plan": shape(own),
                "whale's with equal layers": shape(found["whale, equal layers"][1]),
                **links(own),
            }


def eq_1(limit: float) -> Iterator[Row]:
    """Eq. 1 as printed: T_sync of the volume over the lowest bandwidth."""
    for family, (names, over_megatron, _) in FAMILIES.items():
        ring: list[float] = []
        printed: list[float] = []
        shares: list[float] = []
        for name in names:
            instance, found = shipped(name), plans(name)
            ours, theirs = found["autohet"], found["megatron"]
            ring.append(theirs[0] / ours[0])
            both = [as_printed(instance, plan) for _, plan in (ours, theirs)]
            printed.append(both[1] / both[0])
            parts = judge.evaluate(instance, ours[1]).parts
            shares.append(parts["sync_us"] / 1e6 / ours[0])
        yield {
            "settings": family,
            "over Megatron-LM, ring": mean(ring),
            "as printed": mean(printed),
            "paper": over_megatron,
            "T_sync of AutoHet's iteration, ring, at most": f"{max(shares):.2%}",
        }


def as_printed(instance: Instance, plan: TrainingPlan) -> float:
    """Seconds of Eq. 1 with its own T_sync: the ring's without 2 (n - 1) / n."""
    parts = judge.evaluate(instance, plan).parts
    held = Counter(
        layer
        for pipeline in plan.pipelines
        for stage in pipeline.stages
        for layer in stage.span
        for _ in stage.replicas
    )
    counts = set(held.values())
    if len(counts) != 1:
        raise SystemExit(f"{instance.name}: layers with {counts} replicas")
    (n,) = counts
    sync = parts["sync_us"] * n / (2 * (n - 1)) if n > 1 else 0
    return (parts["iteration_us"] - parts["sync_us"] + sync) / 1e6


def averages(limit: float) -> Iterator[Row]:
    """Speed-ups over the baselines, and the most that any plan can have."""
    for family, (names, over_megatron, over_whale) in FAMILIES.items():

        def over(baseline: str, names: list[str] = names) -> dict[str, float]:
            rows = [(plans(n)[baseline][0], plans(n)["autohet"][0], n) for n in names]
            return {
                f"over {baseline}": mean(slow / own for slow, own, _ in rows),
                "of any plan": mean(slow / bound_s(n) for slow, _, n in rows),
            }

        first, *others = (over(who) for who in list(plans(names[0]))[:3])
        yield {
            "family": family,
            "settings": len(names),
            "over megatron": first["over megatron"],
            "paper": over_megatron,
            "any plan, at most": first["of any plan"],
            **{key: value for row in others for key, value in list(row.items())[:1]},
            "paper, over Whale": over_whale,
            "any plan over whale, equal layers, at most": others[1]["of any plan"],
            **{
                f"over {who}, K = {FIXED_K}": mean(
                    plans(n)[who][0] / plans(n)[f"autohet, K = {FIXED_K}"][0]
                    for n in names
                )
                for who in ("megatron", "whale, equal layers")
            },
        }


def fixed_k(limit: float) -> Iterator[Row]:
    """The same averages with K fixed, as Eq. 2 has it, and with K = B / (b D)."""
    for family, (names, over_megatron, over_whale) in FAMILIES.items():
        for k in (None, *KS):
            row: Row = {
                "family": family,
                "K": "B / (b D)" if k is None else str(k),
                "settings": len(names),
            }
            took = {name: seconds(shipped(name), with_k(name, k)) for name in names}
            for who in list(plans(names[0]))[:3]:
                row[f"over {who}"] = mean(plans(n)[who][0] / took[n] for n in names)
            row["paper, over Megatron"] = over_megatron
            row["paper, over Whale"] = over_whale
            yield row


@cache
def with_k(name: str, k: int | None) -> TrainingPlan:
    """AutoHet's plan; `k` micro-batches a group in Eq. 2, or those of the batch."""
    return autohet.plan(shipped(name), micro_batches=k)


def batches(limit: float) -> Iterator[Row]:
    """The same averages at other global batches."""
    for family, (names, over_megatron, over_whale) in FAMILIES.items():
        for batch in (512, 128, 32):
            rows = [plans(name, batch) for name in names]
            yield {
                "family": family,
                "global batch": batch,
                **{
                    f"over {who}": mean(row[who][0] / row["autohet"][0] for row in rows)
                    for who in list(rows[0])[:3]
                },
                "paper, over Megatron": over_megatron,
                "paper, over Whale": over_whale,
            }


def groups(limit: float) -> Iterator[Row]:
    """The groups that the paper names, judged; ours, and when Eq. 3 prefers theirs."""
    for name, t, named in NAMED:
        instance = shipped(name)
        theirs = plan_of_groups(instance, t, named)
        ours = autohet.plan(instance)
        yield {
            "setting": name,
            "paper's groups": f"tp {t}: " + "; ".join(_told(group) for group in named),
            "they take, s": seconds(instance, theirs),
            "ours": shape(ours),
            "ours take, s": seconds(instance, ours),
            "Eq. 3 prefers theirs at K of": _preferred(instance, t, named),
        }


def plan_of_groups(
    instance: Instance, t: int, groups: list[dict[str, int]], *, mapped: bool = True
) -> TrainingPlan:
    """Given groups of `t` GPUs, mapped and balanced, or neither."""
    cost = FastCost(instance)
    trial = autohet.Trial(cost, mapping=mapped, balancing=mapped)
    for b in instance.workload.micro_batch_sizes:
        if instance.workload.global_batch % b == 0 and measured(
            cost, range(len(cost.nodes)), t, b
        ):
            trial.fits(t, b, groups)
    return trial.best_plan("of these groups")


def _told(group: dict[str, int]) -> str:
    return " + ".join(f"{count} {name}" for name, count in group.items())


def _preferred(instance: Instance, t: int, named: list[dict[str, int]]) -> str:
    """Numbers of micro-batches, fixed as in the paper, at which groups are optimal."""
    data = autohet.grouping_data(FastCost(instance), t, 1)
    wanted = sorted(sorted(group.items()) for group in named)
    found = []
    for k in (4, 8, 16, 32, 64, 128, 256, 512):
        fixed = data.model_copy(
            update={"micro_batches": k, "global_batch_micro_batches": None}
        )
        plan: Any = autohet.best_grouping(fixed, "method", Limits()).plan
        best = sorted(
            sorted(group.gpus.items())
            for group in plan.groups
            for _ in range(group.copies)
        )
        if best == wanted:
            found.append(str(k))
    return ", ".join(found) or "none tried"


def breakdown(limit: float) -> Iterator[Row]:
    """Fig. 9: throughput with the steps switched on one by one, GPT-3 6.7B."""
    for size in (4, 8):
        instance = shipped(f"h800-a100-{size}x{size}-gpt3-6.7b")
        whole = {node.gpu: node.count for node in instance.planned_cluster.nodes}
        alone = plan_of_groups(instance, 1, [whole], mapped=False)
        first: float | None = None
        for (step, switches), paper in zip(STEPS.items(), PAPER_STEPS, strict=True):
            plan = autohet.plan(instance, **switches)
            took = seconds(instance, plan)
            first = first or took
            yield {
                "A100 + H800": f"{size} + {size}",
                "step": step,
                "iteration, s": took,
                "over the best pipeline": first / took,
                "over one of single GPUs": seconds(instance, alone) / took,
                "paper": paper if size == 4 else None,
                "plan": shape(plan),
                **links(plan),
            }


def grouping(limit: float) -> Iterator[Row]:
    """Grouping: the paper's statement on SCIP, that of counts, and the method."""
    for devices, data in _grouping_data():
        row: Row = {"devices": devices, "types": len(data.gpus)}
        ways: list[autohet.GroupingBy] = ["method", "counts"]
        if devices <= LITERAL:
            ways.append("statement")
        best = None
        for way in ways:
            started = perf_counter()
            result = autohet.best_grouping(data, way, Limits(time_s=limit))
            took = perf_counter() - started
            proved = result.status is Status.OPTIMAL
            if proved and best is not None and result.objective != best:
                raise SystemExit(f"{devices} devices: {way}: {result.objective}")
            best = best if best is not None else result.objective
            row[f"{way}, s"] = took if proved else f"no proof in {took:.0f}"
        yield {**row, "paper, s": PAPER_PLANNING_S.get(devices)}


def _grouping_data() -> Iterator[tuple[int, Data]]:
    """The settings' problems, then those of the three types in larger numbers."""
    for name, t in (
        ("a100-h20-2x2-gpt3-6.7b", 1),
        ("4-a100-2-h800-llama-6.7b", 1),
        ("h800-a100-4x4-gpt3-6.7b", 1),
        ("three-types-24-gpt3-6.7b", 2),
        ("h800-a100-8x8-gpt3-6.7b", 1),
        ("three-types-24-gpt3-6.7b", 1),
    ):
        data = autohet.grouping_data(FastCost(shipped(name)), t, 1)
        yield data.devices, data
    for total in (32, 64):
        share, more = divmod(total, 3)
        gpus = tuple(
            gpu.model_copy(update={"count": share + (i < more)})
            for i, gpu in enumerate(data.gpus)
        )
        yield total, data.model_copy(update={"gpus": gpus})
