"""An instance from the files that people have: a configuration and a list of hosts."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from ..errors import InstanceError
from ..schema import Instance
from ..text.complaints import validated
from .importing import document

CLUSTERS = ("hostfile", "nvidia_smi", "sinfo")


def assembled(
    config: Path,
    format: str,
    paths: Sequence[Path],
    options: Iterable[str],
    workload: dict[str, Any],
    name: str | None = None,
) -> dict[str, Any]:
    """The document of an instance: model of `config`, cluster of `paths`.

    `options` are those of the cluster's importer, as `name=value`. Raises
    `InstanceError` for a format that describes no cluster, and for what the
    importers and the instance refuse.
    """
    if format not in CLUSTERS:
        raise InstanceError(
            f"--from {format}: expected a format that describes hosts, one of "
            f"{', '.join(CLUSTERS)}; name one"
        )
    model = document("huggingface", [config], [], None)
    cluster = document(format, paths, options, None)
    made = {
        "name": name or f"{model['model']['name']}-on-{paths[0].stem}",
        "source": f"{model['source']}; {cluster['source']}",
        "model": model["model"],
        "cluster": cluster["cluster"],
        "workload": workload,
    }
    validated(Instance, made, "the assembled instance", file="")
    return made
