"""nanotron: what training prints; the lines are those of 0.1 to 0.5 and of main at
2411b02 (April 2026), and the tables made of them.

    01/01/2025 00:00:00 [INFO|DP=0|PP=0|TP=0|host]: [Start training] datetime: ... |
        mbs: 4 | grad_accum: 16 | global_batch_size: 1024 | sequence_length: 4096 | ...
    ... [INFO|DP=0|PP=0|TP=0|host]: iteration: 10 / 50 | consumed_tokens: 41.9M |
        elapsed_time_per_iteration_ms: 2.85K | tokens_per_sec: 1.47M |
        tokens_per_sec_per_gpu: 23K | global_batch_size: 1.02K | ...
    ... Memory usage: 4.00MiB. Peak allocated 13153.25MiB. Peak reserved: 14332.00MiB

(src/nanotron/trainer.py, logging.py; a line each.) Main calls the time
`time_per_iteration_ms`. Numbers have three digits, so that a time is known to 0.5 %.
The configuration is printed as Python, `ParallelismArgs(dp=2, ...`, of which numbers
and words are read, the first of each name; or it is the YAML file beside the log.

`log_metrics_*.csv` (huggingface/bench_cluster, report.py at its newest) has a row an
iteration, with these names and `peak_allocated_MiB, peak_reserved_MiB`; the rest comes
from the YAML file. `benchmark_csv_path` of main has a row a run, its layout included.
"""

import re
from collections.abc import Iterator, Mapping

from ...costs.runs.rows import Run
from ...errors import InstanceError
from ..documents import Document, Values
from . import logs
from .facts import Facts, Given
from .logs import NUMBER, Peak, Trainer
from .source import Form, Line, Source

Settings = Values

_POWER = {"": 0, "K": 3, "M": 6, "B": 9, "G": 9, "T": 12}
_ITERATION = re.compile(r"\biteration: ([0-9]{1,12}) / [0-9]{1,12} \| ")
_TIME = re.compile(rf"\b(?:elapsed_)?time_per_iteration_ms: {NUMBER}([KMBGT]?)")
_START = re.compile(r"\bmbs: ([0-9]{1,9}) \| grad_accum: ([0-9]{1,9}) \| ")
_LENGTH = re.compile(r"\bsequence_length: ([0-9]{1,12}) \| ")
_PAIR = re.compile(
    r"(?:^|[\s(])([a-z_][a-z0-9_]{1,40})=(?:<[A-Za-z]{1,40}\.)?'?([A-Za-z0-9_.]{1,40})"
)
_PRINTED = ("ParallelismArgs(", "Config(general=")
_COLUMN = "elapsed_time_per_iteration_ms"
_RUN_COLUMN, _RESERVED_COLUMN = "tok/s/gpu", "Mem Res (GB)"
_PEAK_COLUMNS = {
    "peak_allocated_mib": "peak_allocated_MiB",
    "peak_reserved_mib": "peak_reserved_MiB",
}
# Fields of a run by the names of the configuration; and of a row of the benchmark.
_NAMES = {
    "dp": "dp",
    "pp": "pp",
    "tp": "tp",
    "cp": "context_parallel_size",
    "ep": "expert_parallel_size",
    "mbs": "micro_batch_size",
    "ga": "batch_accumulation_per_replica",
    "seq": "sequence_length",
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "intermediate": "intermediate_size",
    "vocabulary": "vocab_size",
}
_BENCHMARK = {
    "model": "name",
    "nodes": "nodes",
    "seq": "seq_len",
    "mbs": "mbs",
    "ga": "batch_accum",
    "gbs": "gbs",
    "dp": "dp",
    "pp": "pp",
    "tp": "tp",
    "cp": "cp",
    "ep": "ep",
    "hidden": "hidden_size",
    "layers": "num_layers",
    "heads": "num_heads",
    "kv_heads": "num_kv_heads",
    "vocabulary": "vocab_size",
    "zero": "zero_stage",
    "tokens_per_s_gpu": _RUN_COLUMN,
}
_GATED = ("silu", "swish", "swiglu")


def _read(source: Source, facts: Facts, given: Given) -> None:
    facts.add("the printed configuration", _settings(_from_log(source.lines)))
    for line in source.lines:
        _start(line, facts)


def _readings(source: Source, batch: int | None) -> list[float]:
    readings: dict[str, float] = {}
    for line in source.lines:
        if "iteration: " not in line.text:
            continue
        iteration, time = _ITERATION.search(line.text), _TIME.search(line.text)
        if iteration and time:
            readings[iteration[1]] = number(time[1], time[2]) / 1000
    return list(readings.values())


def number(digits: str, power: str) -> float:
    """Return the number that `human_format` writes as digits and a letter (2.85, K)."""
    return float(f"{digits}e{_POWER[power]}") if "e" not in digits else float(digits)


def _start(line: Line, facts: Facts) -> None:
    match = _START.search(line.text) if "grad_accum: " in line.text else None
    if match is not None:
        length = _LENGTH.search(line.text)
        facts.add(
            line.place,
            {
                "mbs": int(match[1]),
                "ga": int(match[2]),
                "seq": int(length[1]) if length else None,
            },
        )


# --- configuration -----------------------------------------------------------------


def _from_log(lines: tuple[Line, ...]) -> Settings:
    """Names and values of the configuration as `pformat` prints it."""
    said: Document = {}
    started = False
    for line in lines:
        started = started or any(mark in line.text for mark in _PRINTED)
        if started:
            for name, value in _PAIR.findall(line.text):
                said.setdefault(name, logs.literal(value))
    return said


def _from_tree(tree: Settings) -> Settings:
    """Return the settings of a YAML file's sections, by names of their fields."""
    said: Document = {}
    model = tree.get("model")
    model = model if isinstance(model, dict) else {}
    sections = [tree.get(name) for name in ("parallelism", "tokens", "optimizer")]
    for section in (*sections, model, model.get("model_config")):
        if isinstance(section, dict):
            said = {**section, **said}
    return said


def _settings(said: Settings) -> Document:
    if not said:
        return {}
    fields = {field: said.get(name) for field, name in _NAMES.items()}
    for axis in ("cp", "ep"):
        if "tp" in said and fields[axis] is None:
            fields[axis] = said.get(axis, 1)  # 1 of releases that have no such axis
    activation = said.get("hidden_act")
    asynchronous = said.get("tp_linear_async_communication", said.get("tp_async_comm"))
    return fields | {
        "gated": str(activation) in _GATED if activation is not None else None,
        "zero": said.get("zero_stage"),
        "recompute": _recompute(said),
        "precision": _precision(said),
        "overlap": None if asynchronous is None else f"tp_async_comm={asynchronous}",
    }


def _recompute(said: Settings) -> str | None:
    """Return the recomputation, in old releases by a granularity."""
    if (granularity := said.get("recompute_granularity")) is not None:
        return str(granularity).lower()
    if "tp" in said:
        return "full" if said.get("recompute_layer") is True else "none"
    return None


def _precision(said: Settings) -> str | None:
    match str(said.get("dtype")).removeprefix("torch."):
        case "bfloat16":
            exact = said.get("accumulate_grad_in_fp32") is True
            return "bf16, fp32 gradient accumulation" if exact else "bf16"
        case "float16":
            return "fp16"
        case "float32":
            return "fp32"
    return None


TRAINER = Trainer(
    name="nanotron",
    title="nanotron",
    marks=(("time_per_iteration_ms: ",), *((mark,) for mark in _PRINTED)),
    read=_read,
    readings=_readings,
    peaks=(
        Peak("peak_allocated_mib", re.compile(rf"Peak allocated:? {NUMBER}MiB")),
        Peak("peak_reserved_mib", re.compile(rf"Peak reserved: {NUMBER}MiB")),
        Peak(
            "peak_reserved_mib",
            re.compile(rf"\bcuda_max_memory_reserved: {NUMBER}([KMBGT]?)"),
            lambda match: number(match[1], match[2]) / 2**20,
        ),
    ),
    told={"framework": "nanotron", "vp": 1},
    settings=lambda tree: _settings(_from_tree(tree)),
    config="nanotron",
)
LOG = TRAINER.form


# --- tables ------------------------------------------------------------------------


def _is_metrics(source: Source) -> bool:
    return source.kind == "table" and _COLUMN in source.table.columns


def _metrics_runs(source: Source, given: Given) -> list[Run]:
    facts = TRAINER.facts(source, given)
    readings, most = [], dict[str, float]()
    for place, row in _cells(source):
        readings.append(_cell(source, place, row, _COLUMN) / 1000)
        for field, name in _PEAK_COLUMNS.items():
            if row.get(name):
                mib = _cell(source, place, row, name)
                most[field] = max(most.get(field, 0.0), mib)
    facts.add("memory of the iterations", most)
    logs.measure(source, facts, "iteration_s", readings)
    return [facts.run()]


def _is_benchmark(source: Source) -> bool:
    return source.kind == "table" and _RUN_COLUMN in source.table.columns


def _benchmark_runs(source: Source, given: Given) -> list[Run]:
    runs = []
    for place, row in _cells(source):
        if not _cell(source, place, row, _RUN_COLUMN):
            raise InstanceError.at(
                source.path,
                f"{place}, column {_RUN_COLUMN}",
                "found 0, expected what was measured; leave the row out",
            )
        said = {
            name: logs.whole(logs.literal(text))
            for name, text in row.items()
            if text.strip()
        }
        facts = TRAINER.facts(source, given)
        facts.add(place, _settings(said))
        facts.add(place, {field: said.get(name) for field, name in _BENCHMARK.items()})
        if row.get(_RESERVED_COLUMN):
            gib = _cell(source, place, row, _RESERVED_COLUMN)
            facts.add(place, {"peak_gib": gib})
        runs.append(facts.run())
    return runs


def _cells(source: Source) -> Iterator[tuple[str, dict[str, str]]]:
    count = 0
    for count, (number, row) in enumerate(source.table.rows, 1):  # noqa: B007
        yield f"line {number}", {k: v or "" for k, v in row.items() if type(k) is str}
    if not count:
        raise InstanceError.at(
            source.path, None, "found no rows, expected some below the header; add them"
        )


def _cell(source: Source, place: str, row: Mapping[str, str], name: str) -> float:
    if match := re.fullmatch(NUMBER, row[name].strip()):
        return float(match[1])
    raise InstanceError.at(
        source.path,
        f"{place}, column {name}",
        f"found {row[name][:40]!r}, expected a number; correct it",
    )


METRICS = Form(
    "nanotron-metrics",
    "log_metrics.csv of nanotron",
    "table",
    _is_metrics,
    _metrics_runs,
    "nanotron",
)
BENCHMARK = Form(
    "nanotron-benchmark",
    "nanotron's table of benchmarks (CSV)",
    "table",
    _is_benchmark,
    _benchmark_runs,
    "nanotron",
)
