"""Megatron-LM: what training prints; the lines are those of core_v0.8.0 to 0.20.0.

    ------------------------ arguments ------------------------
      hidden_size ..................................... 4096
    -------------------- end of arguments ---------------------
     > padded vocab (size: 50257) with 47 dummy tokens (new size: 50304)
     [2025-01-01 00:00:00.000000] iteration      100/     500 | consumed samples: ... |
        elapsed time per iteration (ms): 1234.5 | ... | global batch size:   256 | ...
    [Rank 0] (after 2 iterations) memory (MB) | allocated: 1.0 | max allocated: 2.0 |
        reserved: 3.0 | max reserved: 4.0

(megatron/training/arguments.py, `_print_args`; training.py, `training_log`; utils,
`report_memory`; core/tokenizers, the vocabulary; iterations stand in one line.)
Megatron-DeepSpeed prints the same, with `zero_stage` and, in older forks, seconds.

Iterations are printed by the last rank, arguments by the first: the log is of both.
Where the batch is ramped up, iterations of the last size count, and it is the batch.
Sequence parallelism and overlap are words of `overlap`. MB of memory are MiB. The GPU
is not told, unless nvidia-smi ran before.
"""

import re
from collections.abc import Iterator

from ..documents import Document, Values
from . import logs
from .facts import Facts, Given
from .logs import NUMBER, Peak, Trainer
from .source import Line, Source

Arguments = Values

_TITLE = re.compile(r"-{8,40} ?(end of )?[A-Za-z0-9_ \-]{0,60}arguments ?-{8,40}")
_WIDEST_TITLE = 200
_ARGUMENT = re.compile(r" {1,4}([A-Za-z_][A-Za-z0-9_]{0,90}) \.{0,60} ?(.{0,4000})")
_ITERATION = re.compile(r"\biteration {1,12}[0-9]{1,12}/ {0,12}[0-9]{1,12} \|")
_ELAPSED = re.compile(rf"elapsed time per iteration \((ms|s)\): {{1,12}}{NUMBER}")
_BATCH = re.compile(r"global batch size: {1,12}([0-9]{1,12})")
_VOCABULARY = re.compile(r"> padded vocab \(size: ([0-9]{1,9})\)")
_PEAKS = tuple(
    Peak(
        f"peak_{name}_mib",
        re.compile(rf"memory \(MB\).{{0,400}}\| max {name}: {NUMBER}"),
    )
    for name in ("allocated", "reserved")
)
_PLAIN = {
    "layers": "num_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "head_dim": "kv_channels",
    "intermediate": "ffn_hidden_size",
    "gated": "swiglu",
    "seq": "seq_length",
    "gpus": "world_size",
    "dp": "data_parallel_size",
    "tp": "tensor_model_parallel_size",
    "pp": "pipeline_model_parallel_size",
    "mbs": "micro_batch_size",
    "gbs": "global_batch_size",
    "optimizer": "optimizer",
}
_OVERLAP = (
    "sequence_parallel",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "tp_comm_overlap",
    "overlap_moe_expert_parallel_comm",
    "moe_flex_dispatcher_backend",
    "fp8_param_gather",
    "cuda_graph_impl",
)
_SHARDED = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}


def _readings(source: Source, facts: Facts, given: Given) -> list[float]:
    readings, batch = _seconds(source.lines)
    facts.add("the iterations", {"gbs": batch})
    padded = [
        (line.place, int(match[1]))
        for line in source.lines
        if (match := _VOCABULARY.search(line.text))
    ]
    for place, arguments in _dumps(source.lines):
        fields = _fields(arguments)
        if not padded:  # a tokenizer may add to what it was told
            fields["vocabulary"] = logs.positive(arguments.get("vocab_size"))
        # A ramp that was not finished never came to the batch of the arguments.
        facts.add(place, fields if batch is None else {**fields, "gbs": None})
    for place, size in padded:
        facts.add(place, {"vocabulary": size})
    return readings


def printed(source: Source) -> Arguments:
    """Return the arguments that a log, or a part of it, shows; the last of several."""
    if found := [arguments for _, arguments in _dumps(source.lines)]:
        return found[-1]
    matches = [_ARGUMENT.fullmatch(line.text) for line in source.lines if line.text]
    # Without its title a dump is known by its dots.
    if all(one is not None and " .." in one[0] for one in matches):
        return {one[1]: logs.literal(one[2]) for one in matches if one is not None}
    return {}


def _dumps(lines: tuple[Line, ...]) -> Iterator[tuple[str, Arguments]]:
    """Yield each printed list of arguments with its place; a restart prints another."""
    held: Document | None = None
    first = ""
    for line in lines:
        is_title = "arguments" in line.text[:_WIDEST_TITLE]
        match = _TITLE.search(line.text[:_WIDEST_TITLE]) if is_title else None
        if match is not None:
            if match[1] and held is not None:
                yield first, held
            held, first = (None, "") if match[1] else ({}, line.place)
        elif held is not None and (said := _ARGUMENT.fullmatch(line.text)):
            held[said[1]] = logs.literal(said[2])


def _seconds(lines: tuple[Line, ...]) -> tuple[list[float], int | None]:
    """Return the times of the iterations of the last batch size, and that size."""
    readings: list[tuple[float, int | None]] = []
    for line in lines:
        if not _ITERATION.search(line.text):
            continue
        elapsed, batch = _ELAPSED.search(line.text), _BATCH.search(line.text)
        if elapsed:
            unit = 1000 if elapsed[1] == "ms" else 1
            size = int(batch[1]) if batch else None
            readings.append((float(elapsed[2]) / unit, size))
    last = readings[-1][1] if readings else None
    return [seconds for seconds, size in readings if size == last], last


# --- arguments ---------------------------------------------------------------------


def _fields(arguments: Arguments) -> Document:
    fields = {field: arguments.get(name) for field, name in _PLAIN.items()}
    deepspeed = arguments.get("deepspeed") is True
    return {
        **fields,
        "framework": "Megatron-DeepSpeed" if deepspeed else "Megatron-LM",
        "kv_heads": _kv_heads(arguments),
        **_experts(arguments),
        "cp": arguments.get("context_parallel_size", 1),
        "ep": arguments.get("expert_model_parallel_size", 1),
        "etp": arguments.get("expert_tensor_parallel_size"),
        "vp": arguments.get("virtual_pipeline_model_parallel_size") or 1,
        **_zero(arguments),
        "precision": _precision(arguments),
        "gradient_bits": _gradient_bits(arguments),
        "recompute": _recompute(arguments),
        "overlap": _overlap(arguments),
        "offload": "optimizer" if arguments.get("optimizer_cpu_offload") else None,
        "stage_layers": _stages(arguments),
    }


def _kv_heads(arguments: Arguments) -> object:
    if arguments.get("group_query_attention") is True:
        return arguments.get("num_query_groups")
    return arguments.get("num_attention_heads")


def _experts(arguments: Arguments) -> Document:
    experts = logs.positive(arguments.get("num_experts"))
    notes = []
    if arguments.get("multi_latent_attention") is True:
        notes.append("MLA attention")
    if experts is None:
        return {"kind": "dense", "shape_notes": "; ".join(notes) or None}
    pattern = arguments.get("moe_layer_freq", 1)
    if pattern != 1:
        notes.append(f"moe_layer_freq={pattern}")
    each = logs.positive(arguments.get("moe_ffn_hidden_size"))
    each = each or logs.positive(arguments.get("ffn_hidden_size"))
    shared = logs.positive(arguments.get("moe_shared_expert_intermediate_size")) or 0
    if each and shared % each:
        notes.append(f"one shared expert of {shared}")
    return {
        "kind": "moe",
        "experts": experts,
        "experts_per_token": arguments.get("moe_router_topk"),
        "moe_intermediate": each,
        "shared_experts": -(-shared // each) if each else None,
        "shape_notes": "; ".join(notes) or None,
    }


def _zero(arguments: Arguments) -> Document:
    """ZeRO's stage, and by whose FSDP."""
    fsdp = ("use_megatron_fsdp", "use_custom_fsdp")
    if any(arguments.get(name) is True for name in fsdp):
        strategy = str(arguments.get("data_parallel_sharding_strategy"))
        return {"zero": _SHARDED.get(strategy), "fsdp": f"Megatron-FSDP, {strategy}"}
    if arguments.get("use_torch_fsdp2") is True:
        return {"zero": 3, "fsdp": "FSDP2"}
    if arguments.get("deepspeed") is True:
        return {"zero": arguments.get("zero_stage")}
    if "use_distributed_optimizer" not in arguments:
        return {"zero": 0}  # older than the option
    return {"zero": int(arguments["use_distributed_optimizer"] is True)}


def _precision(arguments: Arguments) -> str:
    if arguments.get("fp4"):
        return str(arguments.get("fp4_recipe") or "nvfp4")
    if arguments.get("fp8"):
        recipe = str(arguments.get("fp8_recipe") or "delayed")
        named = {"mxfp8": "mxfp8", "tensorwise": "fp8 current scaling"}
        return named.get(recipe, f"fp8 {recipe} scaling")
    for name in ("bf16", "fp16"):
        if arguments.get(name) is True:
            return f"{name} mixed"
    return "fp32"


def _recompute(arguments: Arguments) -> str:
    granularity = arguments.get("recompute_granularity")
    if granularity == "selective":
        modules = re.findall("[a-z_]{1,40}", str(arguments.get("recompute_modules")))
        return f"selective: {', '.join(modules) or 'core_attn'}"
    if granularity is None:
        old = arguments.get("checkpoint_activations") is True
        return "full (--checkpoint-activations)" if old else "none"
    method, layers = (
        arguments.get(f"recompute_{name}") for name in ("method", "num_layers")
    )
    if method == "uniform" and layers in (None, 1):
        return str(granularity)
    return f"{granularity}, {method}, {layers} layers"


def _gradient_bits(arguments: Arguments) -> int | None:
    wide = arguments.get("accumulate_allreduce_grads_in_fp32")
    return None if wide is None else 32 if wide is True else 16


def _overlap(arguments: Arguments) -> str | None:
    said = [f"{name}={arguments[name]}" for name in _OVERLAP if name in arguments]
    return "; ".join(said) or None


def _stages(arguments: Arguments) -> tuple[int, ...] | None:
    """Layers of each stage, where first or last have another number than the rest."""
    ends = [
        logs.positive(arguments.get(f"decoder_{end}_pipeline_num_layers"))
        for end in ("first", "last")
    ]
    layers, stages = (
        logs.positive(arguments.get(name))
        for name in ("num_layers", "pipeline_model_parallel_size")
    )
    within = (stages or 0) - sum(end is not None for end in ends)
    if ends == [None, None] or layers is None or within < 0:
        return None
    rest = layers - sum(end or 0 for end in ends)
    each, over = divmod(rest, within) if within else (0, rest)
    if over or each < 0:
        return None  # another rule, such as embeddings that count as layers
    first, last = ([end] if end else [] for end in ends)
    return (*first, *[each] * within, *last)


FORM = Trainer(
    name="megatron",
    title="Megatron-LM",
    marks=(
        ("elapsed time per iteration (",),
        ("end of arguments", "num_attention_heads"),
    ),
    read=_readings,
    peaks=_PEAKS,
).form
