"""Runs that nobody measured: they take what the model says with given constants."""

from collections.abc import Mapping
from random import Random
from typing import Any

from hetopt.costs.constants import Table
from hetopt.costs.runs.description import described
from hetopt.costs.runs.fitting import predicted_s
from hetopt.costs.runs.rows import Run

_CARDS = ("a100_80gb", "h100_80gb", "gb200")
_MODELS: tuple[dict[str, Any], ...] = (
    {"model": "small", "layers": 12, "hidden": 1024, "heads": 16},
    {"model": "large", "layers": 32, "hidden": 4096, "heads": 32, "kv_heads": 8,
     "intermediate": 14336, "gated": True},
    {"model": "sparse", "layers": 16, "hidden": 2048, "heads": 16, "experts": 32,
     "experts_per_token": 4, "moe_intermediate": 1024, "gated": True, "ep": 1},
)  # fmt: skip


def row(random: Random) -> dict[str, Any]:
    """A row without seconds, as somebody might have written it."""
    made: dict[str, Any] = {
        "set": "synthetic",
        "vocabulary": 32000,
        "seq": random.choice((1024, 4096)),
        "gpu": random.choice(_CARDS),
        "dp": random.choice((1, 4)),
        "tp": random.choice((1, 2)),
        "pp": random.choice((1, 2)),
        "mbs": random.choice((1, 2, 4)),
        "zero": random.choice((0, 1, 3)),
        "precision": "bf16 mixed",
        "recompute": random.choice(("none", "full")),
        "framework": random.choice(("Megatron-LM", "torchtitan", "something new")),
        **random.choice(_MODELS),
    }
    made["gpus"] = made["dp"] * made["tp"] * made["pp"]
    made["gbs"] = made["mbs"] * made["dp"] * random.choice((4, 8))
    return made


def measured(rows: list[dict[str, Any]], values: Mapping[str, float]) -> list[Run]:
    """The rows as runs that took what the model says with these constants."""
    table, found = Table(values), []
    for fields in rows:
        one = described(Run.model_validate(fields))
        seconds = predicted_s(table, one)
        found.append(Run.model_validate({**fields, "iteration_s": seconds}))
    return found
