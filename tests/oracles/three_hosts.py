"""A small model on three hosts, which the executor trains on this machine."""

from typing import Any


def three_hosts(name: str, gpus: int) -> dict[str, Any]:
    """Return an instance of hosts a, b and c with so many GPUs each."""
    return {
        "name": name,
        "model": {
            **{"name": "m", "layers": 4, "hidden": 32, "heads": 4, "vocabulary": 64},
            **{"gated": True, "kv_heads": 4, "intermediate": 48},
        },
        "cluster": {
            "gpus": {"card": {"peak_tflops": 1, "memory_gib": 8}},
            "nodes": [
                {"name": host, "gpu": "card", "count": gpus, "intra_gbytes_per_s": 10}
                for host in "abc"
            ],
            "inter": {"gbytes_per_s": 1},
        },
        "workload": {
            "sequence_length": 8,
            "global_batch": 8,
            "micro_batch_sizes": [1, 2],
        },
    }
