"""torchtitan: what training prints; the lines are those of 0.1.0 to 0.2.2 and of main
at b5bcd76 (August 2026).

    [titan] 2025-01-01 00:00:00,000 - root - INFO - CUDA capacity: NVIDIA H100 80GB HBM3
        with 79.11GiB memory
    ... Building device mesh with parallelism: pp=1, dp_replicate=1, dp_shard=8, ...
    ... Building llama3 8Bwith { JSON of the model's arguments, indented }
    ... Trainer is initialized with local batch size 1, global batch size 8, ...
    ... step: 10  loss:  7.0000  grad_norm:  1.0000  memory: 40.00GiB(50.57%)
        tps: 5,762  tflops: 333.70  mfu: 33.74%

(torchtitan/components/metrics.py, train.py, distributed/parallel_dims.py.) Older
releases print a mesh by its dimensions, and the model's arguments in one line; main
prints tokens in place of sequences, and no arguments of the model.

What is printed of the configuration (`--job.print_config`), or the configuration beside
the log (TOML, the saved JSON, or the options of the command line), tells precision,
recomputation, compilation and how weights are divided; without one these are null,
but for a mode of recomputation that the log says was applied. Of a configuration that
is silent, the release's own default holds. tokens/s are a GPU's; memory is the most
that was reserved, of the ranks that print.
"""

import re

from ..documents import Document, Values
from . import logs
from .configs import flat
from .facts import Facts, Given
from .logs import NUMBER, Peak, Trainer
from .source import Line, Source

Settings = Values

_STEP = re.compile(r"(?<!validate )\bstep: {1,12}([0-9]{1,12}) {1,4}loss:")
_PEAK = Peak(
    "peak_gib",
    re.compile(rf"{_STEP.pattern}.{{0,400}}\bmemory: {{1,12}}{NUMBER}GiB"),
    lambda match: float(match[2]),
)
_RATE = re.compile(r"\btps: ([0-9][0-9,]{0,20})")
_CAPACITY = re.compile(r"capacity: (.{1,80}) with [0-9.]{1,12}GiB memory")
_MESH = re.compile(r"Building device mesh with parallelism: (.{1,200})")
_MESH_OLD = re.compile(
    r"Building [0-9]-D device mesh with \[(.{0,200})\], \[(.{0,80})\]"
)
_DEGREE = re.compile(r"([a-z_]{2,20})=([0-9]{1,9})")
_BATCH = re.compile(
    r"local batch size ([0-9]{1,9}), global batch size ([0-9]{1,9}), "
    r"gradient accumulation steps [0-9]{1,9}, sequence length ([0-9]{1,9})"
)
_TOKENS = re.compile(
    r"([0-9]{1,15}) tokens per DP rank, ([0-9]{1,15}) tokens per train step, "
    r"gradient accumulation steps [0-9]{1,9}, maximum context length ([0-9]{1,9})"
)
_WORD = r"[A-Za-z0-9_.\-]{1,40}"
_MODEL = re.compile(rf"Building (?!device mesh)({_WORD} {_WORD}?) ?with (.)")
_PAIR = re.compile(r"\b([a-z_]{2,40})=(None|True|False|[0-9.]{1,20})")
CONFIG = "Running with configs: {"
_APPLIED = re.compile(r"Applied ([a-z_]{4,20}) activation checkpointing to the model")
_POLICY = "selective, per op (torchtitan's policy)"


def _read(source: Source, facts: Facts, given: Given) -> None:
    settings = [(c.source, c.tree) for c in given.of("torchtitan")]
    for index, line in enumerate(source.lines):
        _layout(line, facts)
        _model(source, index, facts)
        if (start := line.text.find(CONFIG)) >= 0:
            tree = logs.printed_object(source, index, start + len(CONFIG) - 1)
            settings.append((line.place, flat(tree)))
    for place, fields in settings:
        facts.add(place, _settings(fields))
    for line in source.lines:
        _batch(line, facts, [fields for _, fields in settings])
    if facts["pp"] == 1:
        facts.add("one stage", {"vp": 1})
    for place, fields in settings:
        facts.add(place, _zero(fields, facts))


def _rates(source: Source, _: int | None) -> list[float]:
    """Return tokens a second of each step, as the first rank that prints it has it."""
    rates: dict[str, float] = {}
    for line in source.lines:
        if (step := _STEP.search(line.text)) and (rate := _RATE.search(line.text)):
            rates.setdefault(step[1], logs.number(rate[1]))
    return list(rates.values())


# --- lines -------------------------------------------------------------------------


def _layout(line: Line, facts: Facts) -> None:
    if match := _MESH.search(line.text):
        degrees = {name: int(n) for name, n in _DEGREE.findall(match[1])}
    elif match := _MESH_OLD.search(line.text):
        names = [name.strip(" '") for name in match[1].split(",")]
        sizes = [logs.literal(size.strip()) for size in match[2].split(",")]
        if not all(type(size) is int for size in sizes):
            return
        degrees = dict(zip(names, sizes, strict=False))
    else:
        if match := _CAPACITY.search(line.text):
            facts.add(line.place, {"gpu": match[1].strip()})
        if match := _APPLIED.search(line.text):
            facts.add(line.place, {"activation_checkpointing": match[1]})
            if match[1] == "full":
                facts.add(line.place, {"recompute": "full"})
        return
    inner = degrees.get("dp_shard_in_ep")
    shard = degrees.get("dp_shard_mod_ep", 1) * inner if inner else 1
    cp, tp, pp = (degrees.get(name, 1) for name in ("cp", "tp", "pp"))
    dp = degrees.get("dp_replicate", 1) * degrees.get("dp_shard", shard)
    ep = degrees.get("ep", inner * cp if inner else 1)
    gpus = dp * cp * tp * pp
    facts.add(
        line.place,
        {"dp": dp, "cp": cp, "tp": tp, "pp": pp, "ep": ep, "gpus": gpus},
    )


def _batch(line: Line, facts: Facts, settings: list[Settings]) -> None:
    if match := _BATCH.search(line.text):
        local, batch, length = (int(n) for n in match.groups())
    elif (match := _TOKENS.search(line.text)) and int(match[3]):
        local, batch, length = (int(n) for n in match.groups())
        local, batch = local // length, batch // length
    else:
        return
    facts.add(line.place, {"gbs": batch, "seq": length})
    if facts["pp"] == 1:
        facts.add(line.place, {"mbs": local})
    for fields in settings if (facts["pp"] or 1) > 1 else ():
        count = fields.get("experimental.pipeline_parallel_microbatches")
        size = fields.get("parallelism.pipeline_parallel_microbatch_size", 1)
        if (passes := logs.positive(count)) is not None:
            size = local // passes
        facts.add("size of the pipeline's micro-batches", {"mbs": size})


def _model(source: Source, index: int, facts: Facts) -> None:
    line = source.lines[index]
    if (match := _MODEL.search(line.text)) is None:
        return
    facts.add(line.place, {"model": match[1]})
    if match[2] == "{":
        tree = logs.printed_object(source, index, match.start(2))
        experts = tree.get("moe_args")
        facts.add(
            line.place, _shape({**(experts if type(experts) is dict else {}), **tree})
        )
    else:
        pairs = _PAIR.findall(line.text[match.start(2) :])
        facts.add(line.place, _shape({k: logs.literal(v) for k, v in pairs}))


def _shape(said: Settings) -> Document:
    """Return a model by its arguments; every MLP of torchtitan's models has a gate."""
    hidden, heads = (logs.positive(said.get(name)) for name in ("dim", "n_heads"))
    sparse = said.get("moe_enabled") is True or "n_dense_layers" in said
    latent = logs.positive(said.get("kv_lora_rank")) is not None
    dense = logs.positive(said.get("n_dense_layers"))
    notes = ["MLA attention"] * latent + [f"first {dense} layers dense"] * bool(dense)
    fields = {
        "kind": "moe" if sparse else "dense",
        "layers": said.get("n_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": logs.positive(said.get("n_kv_heads")) or heads,
        "head_dim": logs.positive(said.get("v_head_dim") or said.get("head_dim")),
        "intermediate": _width(said, hidden),
        "gated": True,
        "vocabulary": logs.positive(said.get("vocab_size")),
        "shape_notes": "; ".join(notes) or None,
    }
    if sparse:
        fields |= {
            "experts": said.get("num_experts"),
            "experts_per_token": said.get("top_k"),
            "shared_experts": said.get("num_shared_experts"),
            "moe_intermediate": said.get("moe_inter_dim"),
        }
    return fields


def _width(said: Settings, hidden: int | None) -> int | None:
    """Return the MLP's width: as told, or Llama's 8/3 H by a factor, rounded up."""
    told = logs.positive(said.get("hidden_dim")) or logs.positive(said.get("inter_dim"))
    unit = logs.positive(said.get("multiple_of"))
    if told or hidden is None or unit is None:
        return told
    factor = said.get("ffn_dim_multiplier")
    width = 8 * hidden // 3
    if isinstance(factor, int | float):
        width = int(factor * width)
    return -(-width // unit) * unit


# --- configuration -----------------------------------------------------------------


def _settings(said: Settings) -> Document:
    """Return the fields of a run that a configuration tells by itself."""
    get = said.get
    degrees = {
        "tp": get("parallelism.tensor_parallel_degree"),
        "pp": get("parallelism.pipeline_parallel_degree"),
        "cp": get("parallelism.context_parallel_degree"),
        "ep": get("parallelism.expert_parallel_degree"),
    }
    model = [get("model.name"), get("model.flavor")]
    compiled = ["torch.compile"] * (get("compile.enable") is True)
    asynchronous = get("parallelism.enable_async_tensor_parallel") is True
    overlap = "; ".join(compiled + ["async TP"] * asynchronous)
    mode = get("activation_checkpoint.mode", "selective")
    offloaded = get("training.enable_cpu_offload") is True
    return {
        **{axis: logs.positive(n) for axis, n in degrees.items()},
        "model": " ".join(map(str, model)) if all(model) else None,
        "seq": logs.positive(get("training.seq_len")),
        "gbs": logs.positive(get("training.global_batch_size")),
        "recompute": _recompute(said, mode),
        "activation_checkpointing": mode,
        "overlap": overlap or None,
        "offload": "full (parameters and optimizer to CPU)" if offloaded else None,
        "optimizer": get("optimizer.name"),
        "precision": _precision(said),
    }


def _recompute(said: Settings, mode: object) -> str:
    if mode != "selective":
        return str(mode)
    option = str(said.get("activation_checkpoint.selective_ac_option", "2"))
    return _POLICY if option == "op" else f"selective, one layer in {option}"


def _precision(said: Settings) -> str:
    named = said.get("model.converters") or ()
    converters = " ".join(map(str, named)) if isinstance(named, list) else str(named)
    for name, default in (("float8", "tensorwise"), ("mx", "mxfp8_cublas")):
        if name in converters:
            recipe = said.get(f"quantize.linear.{name}.recipe_name")
            recipe = recipe or said.get(f"{name}.recipe_name") or default
            kind = f"float8 {recipe}" if name == "float8" else str(recipe)
            return f"{kind} (in nn.Linear), bf16 elsewhere"
    if said.get("training.mixed_precision_param", "bfloat16") == "bfloat16":
        return "bf16 (fp32 reduction), by FSDP2 mixed precision"
    return "fp32"


def _zero(said: Settings, facts: Facts) -> Document:
    """ZeRO's stage: 3 where weights are divided again after the forward pass."""
    replicas, pp = facts["dp"], facts["pp"]
    copies = logs.positive(said.get("parallelism.data_parallel_replicate_degree", 1))
    if replicas is None or pp is None or copies is None:
        return {}
    if replicas // copies * (facts["cp"] or 1) == 1:
        return {"zero": 0}
    policy = said.get("parallelism.fsdp_reshard_after_forward", "default")
    again = policy == "always" or (policy == "default" and pp == 1)
    name = "FSDP2, sharded over data parallel x context parallel"
    copied = f"HSDP, {copies} copies of what FSDP2 shards"
    return {"zero": 3 if again else 2, "fsdp": name if copies == 1 else copied}


FORM = Trainer(
    name="torchtitan",
    title="torchtitan",
    marks=(("[titan]",), ("step: ", "tps: ")),
    read=_read,
    readings=_rates,
    peaks=(_PEAK,),
    speed="tokens_per_s_gpu",
    told={"framework": "torchtitan"},
    config="torchtitan",
).form
