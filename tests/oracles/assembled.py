"""What `hetopt assemble` makes of hosts in a file, and of a model."""

from pathlib import Path
from typing import Any

from hetopt.formats.assembling import Listed, assembly
from hetopt.formats.importing import Imported
from hetopt.schema import Instance
from hetopt.text.complaints import validated


def assembled(
    folder: Path,
    hosts: list[str],
    *options: str,
    work: dict[str, Any],
    model: str | Path = "llama-3-8b",
    times: str = "calibrated",
) -> Imported:
    """The document of hosts, which are lines of a hostfile."""
    (folder / "hosts").write_text("\n".join(hosts) + "\n", encoding="utf-8")
    listed = Listed("hostfile", [folder / "hosts"])
    return assembly(model, listed, [*options], dict(work), times=times)


def instance_of(made: Imported) -> Instance:
    return validated(Instance, made.document, "made")
