"""The shelf has what the form offers: cards, models, machines, library instances."""

from functools import cache

from .. import catalogue as sheets
from .. import files
from ..formats import calibrating
from ..formats.importing import assumptions, clusters, finetuning
from ..schema import ModelSpec
from ..schema.targets import TARGETS
from ..text.documents import Document
from .building import Form


@cache
def catalogue() -> Document:
    """Names and figures, all plain values."""
    return {
        "cards": [_card(name) for name in sheets.gpus()],
        "models": [_model(name) for name in sheets.models()],
        "instances": [name for name in files.instance_names() if _has_cluster(name)],
        "targets": sorted(TARGETS),
        "options": sorted(
            {
                *assumptions.OPTIONS,
                *finetuning.OPTIONS,
                *calibrating.OPTIONS,
                *clusters.OPTIONS,
                "times",
            }
        ),
        "form": EXAMPLE.model_dump(mode="json"),
    }


def _card(name: str) -> dict[str, object]:
    card = sheets.gpus()[name]
    machine = sheets.machine(name)
    return {
        "name": name,
        "maker": card.maker,
        "memory_gib": card.memory_gib,
        "peak_tflops": card.peak_tflops,
        "link_gbytes_per_s": card.link_gbytes_per_s,
        "watts": card.watts,
        "gpus": machine.gpus,
        "machine": machine.name,
    }


def _model(name: str) -> dict[str, object]:
    spec = ModelSpec.model_validate(sheets.model(name))
    return {
        "name": name,
        "layers": spec.layers,
        "hidden": spec.hidden,
        "parameters": spec.total_parameters,
    }


def _has_cluster(name: str) -> bool:
    """Return whether an instance is to be planned: offers have no cluster."""
    with files.path_of_known(name).open(encoding="utf-8") as file:
        return any(line.startswith("cluster:") for line in file)


#: What the page begins with: two kinds of cards, one slow link, a model that all know.
EXAMPLE = Form.model_validate(
    {
        "model": {"name": "llama-3-8b"},
        "groups": [
            {"name": "a100", "card": "A100-80GB-SXM4", "gpus": 4, "nodes": 2},
            {"name": "rtx4090", "card": "RTX4090", "gpus": 8, "nodes": 1},
        ],
        "network_gbytes_per_s": 12.5,
        "global_batch": 64,
        "sequence_length": 4096,
    },
    strict=False,
)
