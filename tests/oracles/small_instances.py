"""Small instances in a few words: a test says what matters to it, and no more."""

from collections.abc import Sequence
from typing import Any

from hetopt.schema import Instance

MODEL = {"name": "m", "layers": 4, "hidden": 1024, "heads": 8, "vocabulary": 1000}
#: TFLOP/s and GiB of a card, or all of its fields.
Card = tuple[float, float] | dict[str, Any]


def document(
    nodes: str | Sequence[dict[str, Any]],
    gpus: dict[str, Card],
    *,
    model: dict[str, Any] | None = None,
    inter: float | dict[str, Any] = 1,
    rate: float | None = 50,
    name: str = "small",
    **workload: Any,
) -> dict[str, Any]:
    """Return an instance as its file has it; `workload` has all that is asked of it.

    Nodes are `A*2 B*1`, n0 and n1 on links of `rate` GB/s within, or `a=A*2 b=B*1`.
    """
    listed = nodes
    if isinstance(nodes, str):
        listed = [_node(i, text, rate) for i, text in enumerate(nodes.split())]
    cards = {
        gpu: {"peak_tflops": card[0], "memory_gib": card[1]}
        if isinstance(card, tuple)
        else card
        for gpu, card in gpus.items()
    }
    return {
        "name": name,
        "model": MODEL | (model or {}),
        "cluster": {
            "gpus": cards,
            "nodes": list(listed),
            "inter": inter if isinstance(inter, dict) else {"gbytes_per_s": inter},
        },
        "workload": {"sequence_length": 512, "global_batch": 8, **workload},
    }


def _node(number: int, text: str, rate: float | None) -> dict[str, Any]:
    words, _, count = text.rpartition("*")
    name, _, gpu = words.rpartition("=")
    node = {"name": name or f"n{number}", "gpu": gpu, "count": int(count)}
    return node if rate is None else node | {"intra_gbytes_per_s": rate}


def small(*words: Any, **changes: Any) -> Instance:
    """Return the instance of a `document`."""
    return Instance.model_validate(document(*words, **changes), strict=False)
