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

from ...errors import InstanceError
from ...trainers.megatron import TABLE
from ...trainers.megatron.relatives import NAMES
from ...trainers.megatron.stages import Division
from ...trainers.table import text_of
from ..documents import Document, Values
from ..reading import Reading, reading_of
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
#: Fields of a row that are fields of the table.
_PLAIN = (
    *("layers", "hidden", "heads", "head_dim", "intermediate", "gated", "tied", "seq"),
    *("gpus", "dp", "tp", "pp", "mbs", "gbs", "zero"),
)
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
#: Arguments for which a row of ours has no words, and what they are of.
_UNTOLD = {
    "perform_rl_step": "rollouts",
    "mtp_num_layers": "layers that predict further tokens",
    "window_attn_skip_freq": "windows in some layers",
    "linear_attention_freq": "layers of linear attention",
    "experimental_attention_variant": "other kinds of attention",
    "freeze_LM": "frozen weights of some parts",
    "freeze_ViT": "frozen weights of some parts",
    "moe_latent_size": "experts of another width",
}
_PATTERNS = ("hybrid_override_pattern", "hybrid_layer_pattern")


def _read(source: Source, facts: Facts, given: Given) -> None:
    _, batch = _seconds(source.lines)
    facts.add("the iterations", {"gbs": batch})
    padded = [
        (line.place, int(match[1]))
        for line in source.lines
        if (match := _VOCABULARY.search(line.text))
    ]
    for place, arguments in _dumps(source.lines):
        _refuse(arguments, source, place)
        fields = _fields(arguments)
        if not padded:  # a tokenizer may add to what it was told
            fields["vocabulary"] = logs.positive(arguments.get("vocab_size"))
        # A ramp that was not finished never came to the batch of the arguments.
        facts.add(place, fields if batch is None else {**fields, "gbs": None})
    for place, size in padded:
        facts.add(place, {"vocabulary": size})


def _readings(source: Source, batch: int | None) -> list[float]:
    """Return the times of iterations, which are of the given number of sequences."""
    readings, own = _seconds(source.lines)
    if None not in (own, batch) and own != batch:
        raise InstanceError.at(
            source.path,
            "global batch size",
            f"found iterations of {own} sequences, expected {batch}; assemble an "
            "instance of the run's batch",
        )
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
    told = _reading(arguments)
    deepspeed = arguments.get("deepspeed") is True
    fields = {field: told.fields.get(field) for field in _PLAIN}
    # The check of a row says what a wrong value should be.
    fields |= {name: fault.text for name, fault in told.faults.items()}
    return {
        **fields,
        "framework": "Megatron-DeepSpeed" if deepspeed else "Megatron-LM",
        "kv_heads": told.get("kv_heads", fields["heads"]),
        **_experts(told, arguments),
        "cp": told.get("cp", 1),
        "ep": told.get("ep", 1),
        "etp": told.get("etp"),
        "vp": told.get("division", Division()).runs or 1,
        "zero": told.get("zero", 0),
        "fsdp": _fsdp(arguments),
        "optimizer": arguments.get("optimizer"),
        "precision": _precision(arguments),
        "gradient_bits": _gradient_bits(arguments),
        "attention": _attention(arguments),
        "recompute": _recompute(arguments),
        "overlap": _overlap(arguments),
        "offload": "optimizer" if told.get("hosted") else None,
        "stage_layers": _stages(told),
    }


def _reading(arguments: Arguments) -> Reading:
    """Return what printed arguments say; those that are None say nothing."""
    given: dict[str, str] = {}
    off = set()
    for key, value in arguments.items():
        name = NAMES.get(key.replace("_", "-"), key.replace("_", "-"))
        if value is False:
            off.add(name)
        elif value is not None:
            given.setdefault(name, text_of(value))
    return reading_of(TABLE, given, off)


def _refuse(arguments: Arguments, source: Source, place: str) -> None:
    """`InstanceError` for a run of what a row of ours has no words for."""
    told = {name: arguments.get(name) for name in (*_UNTOLD, *_PATTERNS)}
    for name, value in told.items():
        what = _UNTOLD.get(name, "hybrids with other layers than M, E, * and -")
        is_known = name in _PATTERNS and re.fullmatch(r"[ME*-]+", str(value))
        if value in (None, False, 0) or is_known:
            continue
        raise InstanceError.at(
            source.path,
            f"{name} ({place})",
            f"found {value}, and {what} are not supported when hetopt reads runs; "
            "plan such a model with hetopt assemble, which times its layers",
        )


def _attention(arguments: Arguments) -> str | None:
    """Return that scores pass through memory, where a run says so."""
    told = str(arguments.get("attention_backend", "")).rpartition(".")[2]
    is_local = arguments.get("transformer_impl") == "local"
    without = is_local and arguments.get("use_flash_attn") is not True
    return "unfused" if told == "unfused" or without else None


def _experts(told: Reading, arguments: Arguments) -> Document:
    notes = _shape_notes(told, arguments)
    if not (experts := told.get("experts")):
        return {"kind": "dense", "shape_notes": "; ".join(notes) or None}
    if placed := told.get("expert_layers"):
        dense = placed.index(1) if 1 in placed else 0
        is_first = dense and placed == [0] * dense + [1] * (len(placed) - dense)
        pattern = f"moe_layer_freq={arguments['moe_layer_freq']}"
        notes.append(f"first {dense} layers dense" if is_first else pattern)
    each = told.get("moe_intermediate") or told.get("intermediate")
    shared = told.get("shared_width", 0)
    if each and shared % each:
        notes.append(f"one shared expert of {shared}")
    return {
        "kind": "moe",
        "experts": experts,
        "experts_per_token": told.get("experts_per_token"),
        "moe_intermediate": each,
        "shared_experts": -(-shared // each) if each else None,
        "shape_notes": "; ".join(notes) or None,
    }


def _shape_notes(told: Reading, arguments: Arguments) -> list[str]:
    """Return what of a model a run has words for alone: its mixers and windows."""
    notes = ["MLA attention"] if told.get("latent") else []
    if window := told.get("window"):
        notes.append(f"sliding window of {window}")
    pattern = next(filter(None, (arguments.get(name) for name in _PATTERNS)), None)
    if pattern is not None:
        head = logs.positive(arguments.get("mamba_head_dim")) or 64
        heads = logs.positive(arguments.get("mamba_num_heads"))
        hidden = logs.positive(arguments.get("hidden_size")) or 0
        state = logs.positive(arguments.get("mamba_state_dim")) or 128
        heads = heads or 2 * hidden // head
        notes.append(f"hybrid pattern {pattern}")
        notes.append(f"Mamba {heads} heads x {head}, state {state}")
    return notes


def _fsdp(arguments: Arguments) -> str | None:
    """Return whose FSDP divides states."""
    if any(arguments.get(x) is True for x in ("use_megatron_fsdp", "use_custom_fsdp")):
        return f"Megatron-FSDP, {arguments.get('data_parallel_sharding_strategy')}"
    return "FSDP2" if arguments.get("use_torch_fsdp2") is True else None


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
    # All arguments are printed: a release that prints none of this hides nothing.
    told = {"tp_comm_overlap": False, **arguments}
    said = [f"{name}={told[name]}" for name in _OVERLAP if name in told]
    return "; ".join(said) or None


def _stages(told: Reading) -> tuple[int, ...] | None:
    """Layers of each stage, where a layout tells them, or of the first or last."""
    division, stages = told.get("division", Division()), told.get("pp", 1)
    if not division.is_uneven or stages == 1 or told.get("layers") is None:
        return None
    try:
        parts = division.parts(stages, told.get("layers"), 0)
    except ValueError:  # another rule, such as embeddings that count as layers
        return None
    if len(parts) % stages:
        return None
    return tuple(sum(parts[stage::stages]) for stage in range(stages))


FORM = Trainer(
    name="megatron",
    title="Megatron-LM",
    marks=(
        ("elapsed time per iteration (",),
        ("end of arguments", "num_attention_heads"),
    ),
    read=_read,
    readings=_readings,
    peaks=_PEAKS,
).form
