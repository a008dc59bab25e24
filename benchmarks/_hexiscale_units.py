"""HexiScale's own units and factors, as numbers of an instance.

Its released planner counts peaks in 2^40 and bandwidths in 2^30, spreads the head's
FLOPs over the layers, times pipelines in lockstep, and calibrates: 1.8 x pipeline +
1.65 x synchronisation (1.1, times 1.5 with ZeRO-3).
"""

from typing import Any

from hetopt.schema import Instance, set_fields

FACTORS = {"pipeline_factor": 1.8, "sync_factor": 1.65}


def changed(instance: Instance, **inter: float) -> Instance:
    """The instance with another link between its nodes."""
    document = instance.model_dump(mode="json")
    document["cluster"]["inter"] |= inter
    return Instance.model_validate(document, strict=False)


def calibrated(instance: Instance) -> Instance:
    """The same cluster, model and batch in HexiScale's units."""
    document: dict[str, Any] = instance.model_dump(mode="json")
    cluster, model = document["cluster"], document["model"]
    for gpu in cluster["gpus"].values():
        gpu["peak_tflops"] *= 2**40 / 1e12
    for node in cluster["nodes"]:
        if node["intra_gbytes_per_s"] is not None:
            node["intra_gbytes_per_s"] *= 2**30 / 1e9
    cluster["inter"]["gbytes_per_s"] *= 2**30 / 1e9
    head = 3 * model["vocabulary"] * model["hidden"] // (4 * model["layers"])
    model["active_layer_parameters"] = [
        parameters + head for parameters in instance.model.parameters
    ]
    set_fields(document["workload"]["costs"], {"pipeline": "lockstep", **FACTORS})
    document["name"] += ", calibrated"
    return Instance.model_validate(document, strict=False)
