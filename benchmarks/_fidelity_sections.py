"""Each table of `fidelity.py`: a generator of rows, header by header."""

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import _fidelity_megatron as megatron
import _fidelity_opt as opt
from _fidelity_opt import changed, percent

from hetopt.explaining.simulator import simulate
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance, set_fields

Row = dict[str, Any]
Change = Callable[[dict[str, Any]], None]
_LONG = 8  # sequences of a micro-batch whose kernels keep GPUs busy on OPT-350M
_STEPS = 14  # of a bisection: an efficiency within 1e-4


def judged(instance: Instance, plan: TrainingPlan) -> Row:
    """Seconds and MiB of a plan that keeps the structure.

    Memory may be exceeded: it is what is to be predicted.
    """
    found = training_plan.evaluate(instance, plan)
    if found.objective is None:
        raise ValueError(f"{instance.name}: {found.violations[0]}")
    return {
        "s": found.objective / 1e6,
        "sync": found.parts["sync_us"] / 1e6,
        "mib": max(found.parts["peak_memory_mib"].values()),
    }


def simulated(instance: Instance, plan: TrainingPlan) -> float:
    """Seconds of an iteration, pass by pass."""
    return float(simulate(instance, plan).iteration_us) / 1e6


def fitted(seconds: Callable[[float], float], wanted: float) -> float:
    """The efficiency, at most 1, at which `seconds` comes nearest to what is wanted."""
    low, high = 0.01, 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if seconds(middle) > wanted else (low, middle)
    return round(high, 4)


# --- OPT-350M on Grace-Hopper ------------------------------------------------------


measured = cache(opt.measured)


def _nothing(document: Row) -> None:
    """No change."""


@cache
def _reserve_mib(data: Path, change: Change = _nothing) -> int:
    """What a process takes beside tensors: the first run's surplus, for all runs."""
    known = measured(data)
    run = known.runs[0]
    instance = changed(opt.analytic(known, run), change)
    found = judged(instance, opt.plan_of(run, instance))
    return round(run.peak_mib - found["mib"])


@cache
def _efficiency(data: Path) -> float:
    """Of the products, from a run of one stage whose kernels are long."""
    known = measured(data)
    run = next(run for run in known.runs if run.name == "N16_D16")

    def seconds(efficiency: float) -> float:
        instance = opt.analytic(known, run, efficiency)
        return float(judged(instance, opt.plan_of(run, instance))["s"])

    return fitted(seconds, run.seconds)


def _with_reserve(
    data: Path, instance: Instance, change: Change = _nothing
) -> Instance:
    """The instance after a change, with the reserve of the first run after it."""

    def reserve(document: Row) -> None:
        change(document)
        costs = document["workload"]["costs"]
        costs["memory"]["reserve_mib"] = _reserve_mib(data, change)

    return changed(instance, reserve)


def opt_350(data: Path) -> Iterator[Row]:
    """OPT-350M on 4 to 128 GH200: time and memory of 15 measured runs."""
    known = measured(data)
    for run in known.runs:
        timed = opt.profiled(known, run)
        plan = opt.plan_of(run, timed)
        times, in_steps = judged(timed, plan), simulated(timed, plan)
        derived = _with_reserve(data, opt.analytic(known, run, _efficiency(data)))
        whole = judged(derived, opt.plan_of(run, derived))
        layers = judged(_with_reserve(data, timed), plan)
        before = judged(changed(timed, opt.as_before), plan)["s"]
        held = _with_reserve(data, opt.analytic(known, run), opt.as_before)
        held_before = judged(held, opt.plan_of(run, held))["mib"]
        yield {
            "run": run.name,
            "stages": len(run.layers),
            "replicas": run.replicas,
            "micro-batch": run.micro_batch,
            "measured, s": run.seconds,
            "closed form, s": times["s"],
            "error, %": percent(times["s"], run.seconds),
            "as before, error, %": percent(before, run.seconds),
            "simulated, s": in_steps,
            "simulated, error, %": percent(in_steps, run.seconds),
            "analytic, error, %": percent(whole["s"], run.seconds),
            "sync measured, s": run.sync_s,
            "sync, s": times["sync"],
            "measured, GB": run.peak_mib * opt.MIB / 1e9,
            "memory, GB": whole["mib"] * opt.MIB / 1e9,
            "memory, error, %": percent(whole["mib"], run.peak_mib),
            "memory as before, error, %": percent(held_before, run.peak_mib),
            "weighed layers, error, %": percent(layers["mib"], run.peak_mib),
        }


def _costs(**settings: Any) -> Change:
    def change(document: Row) -> None:
        costs = document["workload"]["costs"]
        if "precision" in settings:
            costs["memory"].pop("bytes_per_parameter", None)
        set_fields(costs, settings)

    return change


def _model(**settings: Any) -> Change:
    def change(document: Row) -> None:
        document["model"] |= settings

    return change


def _gpus(**settings: Any) -> Change:
    def change(document: Row) -> None:
        for gpu in document["cluster"]["gpus"].values():
            gpu |= settings

    return change


def _nodes(**settings: Any) -> Change:
    def change(document: Row) -> None:
        for node in document["cluster"]["nodes"]:
            node |= settings

    return change


def _far(rate: float) -> Change:
    def change(document: Row) -> None:
        document["cluster"]["inter"] |= {"gbytes_per_s": rate, "latency_us": 0}

    return change


def opt_350_time(data: Path) -> Iterator[Row]:
    """OPT-350M: what each term of the time contributes, layers timed as measured."""
    known = measured(data)
    for name, change in (
        ("all terms", _nothing),
        ("adapters left out, as before", opt.as_before),
        ("a hop's parts are gathered", _costs(hop_parts="shared")),
        ("10 ms of overhead", _costs(iteration_overhead_us=10_000)),
        ("hops keep the sender busy alone", _costs(hops="sender")),
        ("nothing crosses between nodes", _far(1e6)),
        ("no synchronisation", _costs(sync_factor=0)),
        ("synchronisation over the slowest link", _costs(sync="bottleneck")),
        ("hidden by the backward pass", _costs(sync_overlap="backward")),
        ("2 bytes an element", _costs(precision="bf16_mixed")),
        ("lockstep pipelines", _costs(pipeline="lockstep")),
    ):
        yield {"variant": name, **_errors(known, change=change)}
    yield {"variant": "updates as profiled", **_errors(known, updates=True)}
    long = [run for run in known.runs if run.micro_batch >= _LONG]
    short = [run for run in known.runs if run.micro_batch < _LONG]
    for name, runs in ((f"{_LONG} sequences alone", long), ("fewer alone", short)):
        found = _errors(known._replace(runs=tuple(runs)))
        yield {"variant": f"all terms, micro-batches of {name}", **found}


def _errors(
    known: opt.Measured, change: Change = _nothing, updates: bool = False
) -> Row:
    """Errors of the time over all runs, after a change."""
    errors = []
    for run in known.runs:
        instance = changed(opt.profiled(known, run, updates), change)
        found = judged(instance, opt.plan_of(run, instance))
        errors.append(percent(found["s"], run.seconds))
    return summary(errors)


def opt_350_memory(data: Path) -> Iterator[Row]:
    """OPT-350M: what each term of the memory contributes, the same reserve in all."""
    known = measured(data)
    for name, change in (
        ("all terms", _costs()),
        ("no reserve", _costs(reserve_mib=0)),
        ("no flat copy of gradients", _costs(flat_gradients=False)),
        ("no gradients of logits", _costs(logit_gradients=False)),
        ("norms keep their inputs", _model(norm="layer")),
        ("dropout's masks", _model(dropout=True, attention_dropout=True)),
        ("GELU in place of ReLU", _model(activation="gelu")),
        ("one copy of the logits", _costs(fused_loss=True, logit_gradients=False)),
        ("one micro-batch in flight", _costs(in_flight="one")),
        ("all micro-batches in flight", _costs(in_flight="gpipe")),
        ("activations by Megatron's formula", _costs(activations="standard")),
        ("flash attention", _costs(flash=True)),
    ):
        errors = []
        for run in known.runs:
            instance = _with_reserve(data, opt.analytic(known, run))
            instance = changed(instance, change)
            found = judged(instance, opt.plan_of(run, instance))
            errors.append(percent(found["mib"], run.peak_mib))
        yield {"variant": name, **summary(errors)}


def summary(errors: list[float]) -> Row:
    """Mean size, worst and bias of errors."""
    sizes = list(map(abs, errors))
    return {
        "mean error, %": sum(sizes) / len(sizes),
        "worst, %": max(sizes),
        "bias, %": sum(errors) / len(errors),
    }


# --- Megatron-LM on A100 -----------------------------------------------------------

_FITTED_ON = "530B"  # the row that fixes the efficiency of `table_5`


@cache
def _megatron(row: megatron.Row, recompute: str, efficiency: float) -> Row:
    """What is predicted for a row of Table 5."""
    instance = megatron.instance_of(row, recompute, efficiency)
    return judged(instance, megatron.plan_of(row))


@cache
def _megatron_efficiency(row: megatron.Row) -> float:
    """The efficiency at which a model's selective row comes out as measured."""

    def seconds(efficiency: float) -> float:
        return float(_megatron(row, "selective", efficiency)["s"])

    return fitted(seconds, row.seconds["selective"])


def table_5(data: Path) -> Iterator[Row]:
    """Megatron-LM, Table 5: seconds on 8 to 512 A100, one efficiency for all."""
    (source,) = (row for row in megatron.TABLE_5 if row.name == _FITTED_ON)
    efficiency = _megatron_efficiency(source)
    for row in megatron.TABLE_5:
        for recompute, wanted in row.seconds.items():
            found = _megatron(row, recompute, efficiency)
            instance = megatron.instance_of(row, recompute, efficiency)
            in_steps = simulated(instance, megatron.plan_of(row))
            yield {
                "model": row.name,
                "recompute": recompute,
                "GPUs": row.stages * megatron.TP,
                "runs a stage": row.interleave,
                "measured, s": wanted,
                "closed form, s": found["s"],
                "error, %": percent(found["s"], wanted),
                "simulated, s": in_steps,
                "simulated, error, %": percent(in_steps, wanted),
                "memory, GiB": found["mib"] / 1024,
                "efficiency": efficiency,
                "fitted": row is source and recompute == "selective",
            }


def table_5_fits(data: Path) -> Iterator[Row]:
    """Megatron-LM: the efficiency fitted on each model's selective row in turn."""
    for fit in megatron.TABLE_5:
        efficiency = _megatron_efficiency(fit)
        errors = [
            percent(_megatron(row, recompute, efficiency)["s"], wanted)
            for row in megatron.TABLE_5
            for recompute, wanted in row.seconds.items()
            if not (row is fit and recompute == "selective")
        ]
        yield {"fitted on": fit.name, "efficiency": efficiency, **summary(errors)}


def table_5_terms(data: Path) -> Iterator[Row]:
    """Megatron-LM: what each term contributes, the efficiency fitted anew each time."""
    (source,) = (row for row in megatron.TABLE_5 if row.name == _FITTED_ON)
    for name, change in (
        ("all terms", _costs()),
        ("no memory-bound time", _gpus(memory_gbytes_per_s=None)),
        ("no all-reduces", _nodes(intra_gbytes_per_s=1e6)),
        ("no hops", _far(1e6)),
        ("not interleaved", _costs(interleave=1)),
        ("no head", _costs(head="omit")),
    ):

        def instance(row: megatron.Row, recompute: str, e: float) -> Instance:
            return changed(megatron.instance_of(row, recompute, e), change)  # noqa: B023

        def seconds(e: float) -> float:
            one = instance(source, "selective", e)
            return float(judged(one, megatron.plan_of(source))["s"])

        efficiency = fitted(seconds, source.seconds["selective"])
        errors = []
        for row in megatron.TABLE_5:
            for recompute, wanted in row.seconds.items():
                one = instance(row, recompute, efficiency)
                errors.append(percent(judged(one, megatron.plan_of(row))["s"], wanted))
        yield {"variant": name, "efficiency": efficiency, **summary(errors)}
