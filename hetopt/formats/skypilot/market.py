"""An instance with offers made one that `hetopt provision` takes, and what it assumes.

Price lists say neither how long a job is nor which pipelines to look at. Without a
search block of the instance's own: micro-batches of D sequences, D the largest of 8, 4,
2, 1 that divides the global batch and whose activations leave the memory of the largest
offers room for all layers; data-parallel degrees are the divisors of D, so that a GPU
has a sequence at a time or more.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from ...costs.offers import provisioning_data
from ...errors import InstanceError
from ...schema import Instance
from ...text import units
from ...text.complaints import validated
from ..importing.assumptions import Assumption

_DEGREES = (8, 4, 2, 1)
MOST_STAGES = 16
UNTOLD = "no list tells it"
NOT_PRICED = "sends between stages, tensor parallelism, writing checkpoints"

Document = dict[str, Any]


def completed(whole: Document, options: Mapping[str, Any]) -> Document:
    """The instance with iterations and a search block, as far as it lacks them.

    Settings to choose from are left out: stages on offers have none. Raises
    `InstanceError` for an instance that is wrong otherwise, and for both of `tokens`
    and `iterations`.
    """
    workload = {k: v for k, v in whole["workload"].items() if k != "alternatives"}
    workload |= _length(workload, options) | _recovery(whole, options)
    made = {**whole, "workload": workload}
    asked = {
        name: options[name]
        for name in ("micro_batches", "data_parallel", "max_stages")
        if name in options
    }
    if "data_parallel" in asked:
        asked["data_parallel"] = _degrees(asked["data_parallel"])
    if "search" not in made:
        made["search"] = _searched(made)
    made["search"] = {**made["search"], **asked}
    return made


def _length(workload: Document, options: Mapping[str, Any]) -> dict[str, int]:
    if "iterations" in options and "tokens" in options:
        raise InstanceError(
            "found both of the options iterations and tokens: give one of them"
        )
    if "iterations" in options:
        return {"iterations": options["iterations"]}
    if "tokens" in options:
        each = workload["global_batch"] * workload["sequence_length"]
        return {"iterations": ceil(options["tokens"] / each)}
    return {}


def _recovery(whole: Document, options: Mapping[str, Any]) -> dict[str, float]:
    """What a loss costs, which has to be told where machines are lost."""
    names = ("restart_s", "checkpoint_every_s")
    told = {name: options[name] for name in names if name in options}
    known = {**whole["workload"], **told}
    missing = [name for name in names if known.get(name) is None]
    if missing and any(offer.get("losses_per_hour") for offer in whole["offers"]):
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise InstanceError(
            f"import skypilot: found spot offers and no {' and no '.join(missing)}, "
            f"which say what a loss costs; give {flags}, such as 10min, or put them "
            "into the instance's workload"
        )
    return told


def _degrees(text: str) -> list[int]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() for word in words):
        raise InstanceError(
            f"option data_parallel: found {text!r}, expected numbers separated by "
            "commas, as 1,2,4; correct it"
        )
    return [int(word) for word in words]


def _searched(whole: Document) -> Document:
    """The first structures of `_DEGREES` under which memory may hold the model."""
    batch = whole["workload"]["global_batch"]
    made: Document = {}
    for most in (d for d in _DEGREES if batch % d == 0):
        made = {
            "micro_batches": batch // most,
            "data_parallel": [d for d in reversed(_DEGREES) if most % d == 0],
            "max_stages": min(MOST_STAGES, int(whole["model"]["layers"])),
        }
        tree = {**whole, "search": made}
        if _may_hold(validated(Instance, tree, "the imported instance", file="")):
            break
    return made


def _may_hold(instance: Instance) -> bool:
    """Whether the layers that the best offer holds at each position are all."""
    data = provisioning_data(instance)
    held = 0
    for position in range(1, data["max_stages"] + 1):
        in_flight = min(data["micro_batches"], position)
        held += max(
            offer["memory_mib"]
            // max(1, offer["layer_mib"] + in_flight * offer["in_flight_mib"])
            for offer in data["offers"]
        )
    return bool(held >= data["layers"])


# --- what was assumed ------------------------------------------------------------


def assumed(made: Document, options: Mapping[str, Any]) -> Iterator[Assumption]:
    """What no price list tells: what, as what it was taken, the flag that changes it.

    What was asked for is no assumption; `options` are those that were given.
    """
    offers = made["offers"]
    if not {"quota", "machines"} & set(options):
        counts = {offer["gpu"]: _machines(offer) for offer in offers}
        fewest, most = min(counts.values()), max(counts.values())
        span = f"{fewest} to {most}" if fewest < most else f"{most}"
        count = f"{span} machines, 64 GPUs"
        yield Assumption("to rent of each offer", count, UNTOLD, "--quota 128")
    if "gbytes_per_s" not in options:
        rate = units.text_of(offers[0]["gbytes_per_s"], units.GBYTES_PER_S)
        change = "--gbytes-per-s 100Gb/s"
        yield Assumption("network of a machine", rate, UNTOLD, change)
    inner = [o["intra_gbytes_per_s"] for o in offers if "intra_gbytes_per_s" in o]
    if inner and "intra_gbytes_per_s" not in options:
        low, high = (
            units.text_of(rate, units.GBYTES_PER_S) for rate in (min(inner), max(inner))
        )
        span = low if low == high else f"{low} to {high}"
        change = "--intra-gbytes-per-s 300GB/s"
        yield Assumption("link within a machine", span, "data sheets", change)
    if "efficiency" not in options:
        shares = [offer["efficiency"] for offer in offers]
        low, high = (f"{share:.0%}" for share in (min(shares), max(shares)))
        span = low if low == high else f"{low} to {high}"
        source = "published runs on the cards or their like"
        yield Assumption("share of the peak", span, source, "--efficiency 40%")
    if "region" not in options and "places" not in options:
        change = "--region NAME, --places region"
        yield Assumption("region", "the cheapest of each offer", "the list", change)
    if "spot" not in options:
        change = "--spot --losses-per-hour N"
        yield Assumption("price", "on demand", "the list", change)
    if "search" not in made:
        return
    workload, search = made["workload"], made["search"]
    if not {"iterations", "tokens"} & set(options):
        count = f"{workload.get('iterations', 1)} iterations"
        change = "--tokens 15T, --iterations 1k"
        yield Assumption("length of the job", count, "the instance", change)
    degrees = ", ".join(map(str, search["data_parallel"]))
    fits = "the batch, and what fits"
    yield Assumption("data-parallel degrees", degrees, fits, "--data-parallel 1,2,4")
    each = str(search["micro_batches"])
    yield Assumption("micro-batches", each, fits, "--micro-batches N")
    stages = str(search["max_stages"])
    yield Assumption("stages at most", stages, "the layers", "--max-stages N")
    if "storage" not in made:
        change = "storage of the instance"
        yield Assumption("storage and egress", "free", UNTOLD, change)
    yield Assumption("not priced", NOT_PRICED, UNTOLD, "")


def _machines(offer: Document) -> int:
    return int(offer["quota"]) // int(offer["gpus_per_instance"])
