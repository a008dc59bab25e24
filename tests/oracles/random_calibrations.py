"""Random constants of calibrated times, about those that are shipped."""

from random import Random
from typing import Any

from flat import flat

from hetopt.costs.constants.shipped import values
from hetopt.schema import Instance

FRAMEWORKS = ["megatron", "torchtitan", "llm-foundry", "deepspeed"]
CARDS = [("A100", "Ampere"), ("H100", "Hopper"), ("V100", "Volta"), ("X1", "New")]


def calibration(rng: Random) -> dict[str, Any]:
    """What `workload.costs.calibration` holds; launches may take next to nothing."""
    quick = rng.choice([1.0, 0.01])
    drawn = {
        name: value * rng.uniform(0.8, 1.25) * (quick if name == "launch" else 1)
        for name, value in values().items()
    }
    return {
        "framework": rng.choice(FRAMEWORKS),
        "style": rng.choice(["eager", "compiled", "fused"]),
        "kernel": rng.choice(["cudnn", "flash1", "flash2", "none"]),
        "precision": rng.choice(["bf16", "fp16", "fp8"]),
        "constants": drawn,
        "spread": rng.choice([0.0, 0.1, 0.5]),
        "release": rng.choice([None, "24.02", "27.01"]),
        "site": rng.choice([None, "frontier"]),
        "overlap": rng.choice([[], ["tp"], ["experts"], ["tp", "untold"]]),
        "dispatcher": rng.choice(["alltoall", "flexible"]),
        "loss": rng.choice(["whole", "chunked"]),
    }


def sheet(rng: Random, tflops: float) -> dict[str, Any]:
    """What calibrated times need of a GPU type beside its peak."""
    card, generation = rng.choice(CARDS)
    peaks = {"fp16": tflops}
    if card != "V100":
        peaks |= {"bf16": tflops}
    if card == "H100":
        peaks |= {"fp8": min(2 * tflops, 999_999.0)}
    rate = rng.choice([900.0, 2039.5])
    return {
        "card": card,
        "generation": generation,
        "peaks": peaks,
        "memory_gbytes_per_s": rate,
    }


def calibrated(rng: Random, instance: Instance) -> Instance:
    """An instance with analytic times, with calibrated ones in their place."""
    tree = flat(instance)
    tree["workload"]["costs"] |= {
        "layer_times": "calibrated",
        "profile": [],
        "calibration": calibration(rng),
        "hop_factor": rng.choice([1, 1, 0.3]),
    }
    if rng.random() < 0.5:
        tree["workload"]["costs"]["activations"] = "calibrated"
    for gpu in tree["cluster"]["gpus"].values():
        gpu |= sheet(rng, gpu["peak_tflops"])
    return Instance.model_validate(tree, strict=False)
