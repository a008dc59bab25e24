"""The shelf has what the form offers: cards, models, machines, library instances."""

from collections import Counter
from functools import cache

from .. import catalogue as sheets
from .. import files
from ..formats import calibrating
from ..formats.importing import assumptions, clusters, finetuning
from ..schema import ModelSpec
from ..schema.targets import TARGETS
from ..text.documents import Document
from ..text.parsing import read_tree
from .building import Form


@cache
def catalogue() -> Document:
    """Names and figures, all plain values; `about` has a sentence on each instance."""
    trees = {n: read_tree(files.path_of_known(n)) for n in files.instance_names()}
    about = {name: _sentence(tree) for name, tree in trees.items() if "cluster" in tree}
    return {
        "cards": [_card(name) for name in sheets.gpus()],
        "models": [_model(name) for name in sheets.models()],
        "instances": [*about],
        "about": about,
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


def _sentence(tree: Document) -> str:
    """Say which cards train which model, and whose instance that is."""
    gpus: Counter[str] = Counter()
    for node in tree["cluster"]["nodes"]:
        gpus[node["gpu"]] += node["count"]
    held = ", ".join(f"{count} {gpu}" for gpu, count in gpus.items())
    model = tree["model"].get("name") or tree["model"]["preset"]
    return f"{held} train {model}. {tree['source'].partition(';')[0]}."


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
