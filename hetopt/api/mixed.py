"""A run whose row has a plan is judged as that plan, on an instance of its nodes.

The nodes are hosts, assembled as listed ones are; the words of the row mean what they
mean in other rows, and its constants are theirs.
"""

from collections.abc import Mapping

from ..costs import chances
from ..costs.constants import Constant
from ..costs.formulas.frameworks import FRAMEWORKS
from ..costs.formulas.layout import Layout
from ..costs.runs.description import Described, NotModelled, described
from ..costs.runs.prediction import Prediction, spread
from ..costs.runs.rows import Run
from ..errors import HetoptError
from ..formats.assembling import on_hosts
from ..formats.importing.calibrating import run_by
from ..formats.importing.clusters import Host
from ..plans import TrainingPlan
from ..problems import training_plan
from ..schema import Instance, ModelSpec
from ..schema.groups import WHOLE
from ..text.complaints import validated

_SAME = "hidden", "heads", "kv_heads", "head_dim", "intermediate", "gated", "vocabulary"


def prediction(
    row: int, run: Run, plan: TrainingPlan, known: Mapping[str, Constant]
) -> Prediction:
    """Return what the judge says of a run's plan, or why it says nothing."""
    try:
        data = instance_of(run, plan, known)
    except (NotModelled, HetoptError) as why:
        return Prediction(row, not_modelled=str(why))
    found = training_plan.evaluate(data, plan)
    if broken := [one for one in found.violations if one.rule != "memory"]:
        return Prediction(row, not_modelled=f"its plan breaks a rule: {broken[0]}")
    parts = found.parts
    gib = max(need for _, need in chances.needs(data, parts["peak_memory_mib"])) / 2**30
    times = parts["iteration_us"] / 1e6, parts["low_s"], parts["high_s"]
    return Prediction(row, *times, gib, oom_probability=parts["oom_probability"])


def instance_of(
    run: Run, plan: TrainingPlan, known: Mapping[str, Constant]
) -> Instance:
    """Return the instance of a run's plan; raise `NotModelled` where there is none."""
    if not isinstance(run.nodes, tuple):
        raise NotModelled("nodes missing: give the list of those that the plan is on")
    hosts, parts, links = [], [], []
    for number, node in enumerate(run.nodes):
        links.append(node.intra_gbytes_per_s or run.intra_gbytes_per_s)
        told: dict[str, object] = {"gpu": node.gpu, "gpus": node.gpus, "nodes": 1}
        told |= dict.fromkeys(("tp", "pp", "cp", "vp", "ep", "mbs", "ga"), 1)
        told |= dict.fromkeys(("plan", "gbs", "stage_layers"))
        told |= {"dp": node.gpus, "network": node.network or run.network}
        parts.append(described(run.model_copy(update=told)))
        machine = parts[-1].machine
        host = Host(node.name or f"node{number}", machine.card, node.gpus, "nodes")
        rate = machine.adapters * machine.adapter_bytes_per_s / 1e9
        hosts.append(host._replace(network_gbytes_per_s=rate))
    workload = {
        "sequence_length": run.seq,
        "global_batch": run.gbs or plan.sequences,
        "micro_batch_sizes": sorted({x.micro_batch_size for x in plan.pipelines}),
    }
    model, how = _model(run, parts[0]), _options(run, plan, parts[0].layout)
    options = [f"{name}={x}" for name, x in how.items()]
    made = on_hosts(model, hosts, options, workload, model.name)
    for host, link in zip(made.document["cluster"]["nodes"], links, strict=True):
        host |= {"intra_gbytes_per_s": link} if link else {}
    kernels = [part.layout.kernel for part in parts if part.layout.kernel]
    words: dict[str, object] = {
        "constants": {n: c.value for n, c in known.items() if "system@" not in n},
        "spread": max(map(spread, parts)),
        "style": parts[0].layout.style,
        "kernel": kernels[0] if kernels else "none",
    }
    data = validated(Instance, made.document, model.name, file="")
    return run_by(data, str(how["framework"]), **words)


def _model(run: Run, part: Described) -> ModelSpec:
    a = part.architecture
    if a.experts or a.latent or a.mixers or a.window:
        raise NotModelled("only dense layers with plain attention have a plan")
    return ModelSpec(
        name=run.model or "run",
        layers=len(a.layers),
        tied_embeddings=a.tied,
        dropout=part.layout.dropout,
        activation="silu" if a.gated else "gelu",
        norm="rms" if a.gated else "layer",
        **{name: getattr(a, name) for name in _SAME},
    )


def _options(run: Run, plan: TrainingPlan, layout: Layout) -> dict[str, object]:
    """Return the options of `hetopt assemble` that say how a run trains."""
    lacks = {
        "adapters": layout.lora,
        "offload": run.offload,
        f"optimizer {run.optimizer!r}": layout.moments_bits != 32,
        f"fsdp {run.fsdp!r}": "HSDP" in str(run.fsdp),
        f"precision {run.precision!r}": layout.precision in ("fp32", "tf32"),
        f"recompute {run.recompute!r}": layout.recompute in ("block", "ops"),
    }
    if given := [name for name, is_told in lacks.items() if is_told]:
        raise NotModelled(f"{', '.join(given)} beside a plan is not modelled")
    own = 3 if layout.shard else layout.zero
    return {
        "runs_on": "architecture",
        "framework": layout.framework if layout.framework in FRAMEWORKS else "torch",
        "precision": f"bf16_{'fp32_gradients' if layout.accumulate_fp32 else 'mixed'}",
        "products": layout.precision,
        "flash": layout.kernel is not None,
        "sequence_parallel": layout.split_sequence,
        "recompute": ",".join(dict.fromkeys((layout.recompute, *WHOLE))),
        "zero": own if plan.zero is None else plan.zero,
        "context_parallel": plan.context_parallel or run.cp or 1,
        "interleave": plan.interleave or run.vp or 1,
    }
