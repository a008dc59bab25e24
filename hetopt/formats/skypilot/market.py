"""An instance with offers made one that `hetopt provision` takes, and what it assumes.

Offers are timed by formula and their stages are divided by data parallelism alone:
calibrated or measured times, virtual stages and the like of the instance are left out,
and told. What a plan may choose stays: recomputation, ZeRO, micro-batch sizes.

Price lists do not say which pipelines to look at. Without a search block of the
instance's own: degrees of 1, 2, 4 and 8 that divide the global batch with one of the
micro-batch sizes.
"""

from collections.abc import Iterator
from math import ceil

from ...errors import InstanceError
from ...schema import CostSettings, ungroup_fields
from ...schema.groups import FIELDS
from ...text.documents import Document, Fields
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
    whole: Document, options: Fields
) -> tuple[Document, tuple[Assumption, ...]]:
    """Return the instance with iterations and a search block, as far as it lacks them.

    Settings that offers are not timed under are left out, each with a row. Raises
    `InstanceError` for an instance that is wrong otherwise.
    """
    workload, rows = _by_formula(whole["workload"])
    if "tokens" in options:
        each = workload["global_batch"] * workload["sequence_length"]
        workload["iterations"] = ceil(options["tokens"] / each)
    losses = "restart_s", "checkpoint_every_s"
    workload |= {name: options[name] for name in losses if name in options}
    missing = [name for name in losses if workload.get(name) is None]
    if missing and any(offer.get("losses_per_hour") for offer in whole["offers"]):
        flags = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise InstanceError(
            f"import skypilot: found spot offers and no {' and no '.join(missing)}, "
            f"which say what a loss costs; give {flags}, such as 10min, or put them "
            "into the instance's workload"
        )
    made = {**whole, "workload": workload}
    return made | {"search": whole.get("search") or _search(made)}, rows


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


def _search(whole: Document) -> Document:
    """Return degrees that divide the batch with a micro-batch size, and the stages."""
    workload = whole["workload"]
    batch, sizes = workload["global_batch"], workload.get("micro_batch_sizes", [1])
    degrees = [d for d in _DEGREES if any(batch % (d * b) == 0 for b in sizes)]
    if not degrees:
        raise InstanceError(
            f"import skypilot: found global_batch {batch}, which none of the micro-"
            f"batch sizes {', '.join(map(str, sizes))} divides; give the instance a "
            "search block"
        )
    most = min(MOST_STAGES, int(whole["model"]["layers"]))
    return {"data_parallel": degrees, "max_stages": most}


# --- what was assumed ------------------------------------------------------------


def assumed(made: Document, options: Fields) -> Iterator[Assumption]:
    """Yield what no price list has: item, assumed value, flag to change it.

    What was asked for is no assumption; `options` are those that were given.
    """
    offers, told = made["offers"], set(options)
    rate = f"{offers[0]['gbytes_per_s']:g}GB/s"
    shares = [offer["efficiency"] for offer in offers]
    peak = " to ".join(dict.fromkeys(f"{x:.0%}" for x in (min(shares), max(shares))))
    published = "published runs on the cards or their like"
    for asked, *row in (
        ("quota", "to rent of each offer", "64 GPUs", UNTOLD, "--quota 128"),
        ("gbytes_per_s", "network of a machine", rate, UNTOLD, "--gbytes-per-s 10GB/s"),
        ("", "link within a machine", "the card's", "data sheets", "edit the offers"),
        ("efficiency", "share of the peak", peak, published, "--efficiency 40%"),
        ("region", "region", "the cheapest of each offer", "the list", "--region NAME"),
        ("spot", "price", "on demand", "the list", "--spot --losses-per-hour N"),
    ):
        if asked not in told and (asked != "region" or "places" not in told):
            yield Assumption(*row)
    if "search" not in made:
        return
    workload, search = made["workload"], made["search"]
    if "tokens" not in told:
        count = f"{workload.get('iterations', 1)} iterations"
        yield Assumption("length of the job", count, "the instance", "--tokens 15T")
    change = "search of the instance"
    degrees = ", ".join(map(str, search["data_parallel"]))
    yield Assumption("data-parallel degrees", degrees, "the batch", change)
    yield Assumption("stages at most", str(search["max_stages"]), "the layers", change)
    yield from _choices(workload, search)
    yield Assumption("storage and egress", "free", UNTOLD, "")
    yield Assumption("not priced", NOT_PRICED, UNTOLD, "")


def _choices(workload: Document, search: Document) -> Iterator[Assumption]:
    """Yield the settings that the search chooses for a plan, and from what."""
    change = "the instance"
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
