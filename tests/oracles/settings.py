"""HexiScale's settings 1 and 2 (section 5.1), built by hand for quick tests."""

from typing import Any

import pytest
from small_instances import small

from hetopt.schema import Instance

_TYPES: dict[str, tuple[float, int, int]] = {  # TFLOPS, GiB, GB/s within a node
    "RTX3080Ti": (56.9, 12, 24),
    "RTX3090": (80.0, 24, 24),
    "RTX4090": (165.2, 24, 32),
    "A800": (312.0, 80, 200),
}
_NODES = {
    "1": ("RTX3080Ti", "RTX3090", "RTX4090", "RTX4090", "RTX4090"),
    "2": ("RTX3080Ti", "RTX3090", "RTX4090", "A800"),
}
#: What HexiScale's appendix counts.
COSTS = {
    "bytes_per_parameter": 8,
    "head": "omit",
    "activations": "checkpoint",
    "in_flight": "one",
}
#: Seconds of plans of simple families, by setting and model.
SIMPLE = [
    ("1", "7b", 30.7),
    ("2", "13b", 57.2),
    pytest.param("1", "13b", 58.2, marks=pytest.mark.slow),
    pytest.param("2", "7b", 30.8, marks=pytest.mark.slow),
]
_MODELS = {"7b": (32, 4096), "13b": (40, 5120)}


def setting(
    number: str,
    model: str,
    *,
    micro_batch_sizes: tuple[int, ...] = (1,),
    pairs: tuple[list[Any], ...] = (),
    size: tuple[int, int, int] | None = None,
) -> Instance:
    """Nodes of 8 GPUs joined at 0.7 GB/s, but for `pairs`; global batch 512.

    `size` asks for a smaller one: the last nodes, GPUs of each, layers.
    """
    layers, hidden = _MODELS[model]
    first, count = 0, 8
    if size is not None:
        first, count, layers = len(_NODES[number]) - size[0], *size[1:]
    types = {x: _TYPES[x][:2] for x in _TYPES if x in _NODES[number][first:]}
    nodes = [
        {"name": f"node{i}", "gpu": gpu, "count": count, "intra_gbytes_per_s": rate}
        for i, gpu in enumerate(_NODES[number])
        if i >= first
        for rate in [_TYPES[gpu][2]]
    ]
    shape = {"name": model, "layers": layers, "hidden": hidden, "heads": 32}
    shape |= {"vocabulary": 32000, "parameters_per_layer": 12 * hidden**2}
    return small(
        *(nodes, types),
        model=shape,
        inter={"gbytes_per_s": 0.7, "pairs": pairs},
        name=f"setting-{number}-{model}",
        sequence_length=4096,
        global_batch=512,
        micro_batch_sizes=micro_batch_sizes,
        costs=COSTS,
    )
