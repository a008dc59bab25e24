"""A small model on three hosts, which the executor trains on this machine."""

from typing import Any

from small_instances import document


def three_hosts(name: str, gpus: int) -> dict[str, Any]:
    """Return an instance of hosts a, b and c with so many GPUs each."""
    return document(
        " ".join(f"{host}=card*{gpus}" for host in "abc"),
        {"card": (1, 8)},
        model={"hidden": 32, "heads": 4, "vocabulary": 64}
        | {"gated": True, "kv_heads": 4, "intermediate": 48},
        rate=10,
        name=name,
        sequence_length=8,
        micro_batch_sizes=[1, 2],
    )
