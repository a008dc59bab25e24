"""An instance with offers made one that `hetopt provision` takes, and what it assumes.

Offers are timed by formula and their stages are divided by data parallelism alone:
calibrated or measured times, virtual stages and the like of the instance are left out,
and told. What a plan may choose stays: recomputation, ZeRO, micro-batch sizes.

Price lists say neither how long a job is nor which pipelines to look at. Without a
search block of the instance's own: degrees of 1, 2, 4 and 8 that divide the global
batch with one of the micro-batch sizes.
"""

from collections.abc import Iterator
from math import ceil

from ...errors import InstanceError
from ...schema import CostSettings, ungroup_fields
from ...schema.splits import FIELDS
from ...text import units
from ..documents import Document, Values
from ..importing.assumptions import Assumption

_DEGREES = (1, 2, 4, 8)
MOST_STAGES = 16
UNTOLD = "not in the list"
NOT_PRICED = "sends between stages, tensor parallelism, writing checkpoints"
#: What other times than a formula's bring along, by the layer_times of an instance.
_BESIDE = {
    "calibrated": (
        *("layer_times", "activations", "calibration", "sync_factor", "hop_factor"),
        *("interleaved_hop_factor", "iteration_overhead_us", "gathers"),
    ),
    "profile": ("layer_times", "profile"),
}
_TIMES = {"calibrated": "calibration", "profile": "profile"}


def completed(
    whole: Document, options: Values
) -> tuple[Document, tuple[Assumption, ...]]:
    """Return the instance with iterations and a search block, as far as it lacks them.

    Settings that offers are not timed under are left out, each with a row. Raises
    `InstanceError` for an instance that is wrong otherwise, and for both of `tokens`
    and `iterations`.
    """
    workload, rows = _by_formula(whole["workload"])
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
        made["search"] = _search(made, asked.get("micro_batches"))
    made["search"] = {**made["search"], **asked}
    return made, rows


def _by_formula(workload: Document) -> tuple[Document, tuple[Assumption, ...]]:
    """Return the workload as offers are timed, with what is left out of it."""
    costs, rows = ungroup_fields(workload.get("costs", {})), []
    other = dict(workload.get("alternatives", {}))
    if (times := costs.get("layer_times")) in _BESIDE:
        costs = {k: v for k, v in costs.items() if k not in _BESIDE[times]}
        why = f"offers do not use the {_TIMES[times]} of the instance"
        value = "by formula, a share of the peak"
        rows.append(Assumption("times and memory", value, why, "--efficiency 40%"))
    for field in FIELDS:
        degrees = [costs.pop(field, 1), *(other.pop(field, None) or ())]
        if 1 not in degrees:
            raise InstanceError(
                f"import skypilot: found {field} {degrees[0]}, expected 1: stages on "
                f"offers are not divided so; assemble the instance with -o {field}=1"
            )
        if len(degrees) > 1:
            what, why = field.replace("_", " "), "stages on offers are not divided so"
            value = f"1, of {' / '.join(map(str, dict.fromkeys(degrees)))}"
            rows.append(Assumption(what, value, why, ""))
    kept = {k: v for k, v in workload.items() if k not in ("costs", "alternatives")}
    kept |= {"costs": costs} if costs else {}
    return kept | ({"alternatives": other} if other else {}), tuple(rows)


def _length(workload: Document, options: Values) -> dict[str, int]:
    if "iterations" in options and "tokens" in options:
        raise InstanceError(
            "options iterations and tokens exclude each other: give one"
        )
    if "iterations" in options:
        return {"iterations": options["iterations"]}
    if "tokens" in options:
        each = workload["global_batch"] * workload["sequence_length"]
        return {"iterations": ceil(options["tokens"] / each)}
    return {}


def _recovery(whole: Document, options: Values) -> dict[str, float]:
    """Return the cost of losing machines; the user tells it for spot machines."""
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


def _search(whole: Document, micro_batches: int | None) -> Document:
    """Degrees that divide the batch, with micro-batches that are told or with sizes."""
    workload = whole["workload"]
    batch, sizes = workload["global_batch"], workload.get("micro_batch_sizes", [1])
    if micro_batches is not None:
        # Degrees above the sequences of a micro-batch leave GPUs without any.
        share = max(1, batch // micro_batches)
        degrees = [d for d in _DEGREES if share % d == 0]
    else:
        degrees = [d for d in _DEGREES if any(batch % (d * b) == 0 for b in sizes)]
    if not degrees:
        raise InstanceError(
            f"import skypilot: found global_batch {batch}, which none of the micro-"
            f"batch sizes {', '.join(map(str, sizes))} divides; give --micro-batches N"
        )
    most = min(MOST_STAGES, int(whole["model"]["layers"]))
    return {"data_parallel": degrees, "max_stages": most}


# --- what was assumed ------------------------------------------------------------


def assumed(made: Document, options: Values) -> Iterator[Assumption]:
    """Yield what no price list has: item, assumed value, flag to change it.

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
    yield Assumption(
        "data-parallel degrees", degrees, "the batch", "--data-parallel 1,2,4"
    )
    yield from _choices(workload, search)
    stages = str(search["max_stages"])
    yield Assumption("stages at most", stages, "the layers", "--max-stages N")
    if "storage" not in made:
        change = "storage of the instance"
        yield Assumption("storage and egress", "free", UNTOLD, change)
    yield Assumption("not priced", NOT_PRICED, UNTOLD, "")


def _choices(workload: Document, search: Document) -> Iterator[Assumption]:
    """Yield the settings that the search chooses for a plan, and from what."""
    change = "--micro-batches N"
    if (told := search.get("micro_batches")) is not None:
        yield Assumption("micro-batches", str(told), "the instance", change)
    else:
        sizes = " / ".join(map(str, workload.get("micro_batch_sizes", [1])))
        yield Assumption("micro-batch sizes", sizes, "the instance", change)
    for field, others in workload.get("alternatives", {}).items():
        own = workload.get("costs", {}).get(field, CostSettings().value(field))
        values = " / ".join(map(str, dict.fromkeys((own, *others))))
        yield Assumption(
            field, values, "chosen by the planner", "alternatives of the instance"
        )


def _machines(offer: Document) -> int:
    return int(offer["quota"]) // int(offer["gpus_per_instance"])
