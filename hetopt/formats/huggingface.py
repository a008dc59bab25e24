"""A model's Hugging Face `config.json` as the model of an instance.

`architectures.from_config` says which keys are read. The name of the model is the
option `name`, else the configuration's `_name_or_path`, else the folder's name. With
`mtp=false` layers that predict further tokens are left out. What of a configuration is
not modelled is among what is `assumed`, with the parameters in all.
"""

from collections.abc import Sequence
from pathlib import Path

from ..catalogue.architectures import from_config, remarks
from ..errors import InstanceError
from ..schema import LONGEST_NAME, name_fault
from ..text.documents import Document
from ..text.parsing import parse_tree, read_text
from .importing.assumptions import Assumption

OPTIONS: Document = {"name": str, "mtp": bool}
_CHANGE = "model.layer_parameters of the instance"


def read(
    paths: Sequence[Path], *, name: str | None = None, mtp: bool = True
) -> Document:
    """Return `source`, `model` and `assumed` of one configuration."""
    if len(paths) != 1:
        raise InstanceError(
            f"found {len(paths)} files, expected one config.json; name one"
        )
    path = paths[0]
    config = parse_tree(read_text(path), str(path), is_json=True)
    said = config.get("_name_or_path")
    own = said.strip("/. ")[:LONGEST_NAME].strip() if isinstance(said, str) else ""
    called = name or own or path.resolve().parent.name or path.stem
    if fault := name_fault(called):
        raise InstanceError(f"{path}: name of the model: {fault}, or give --name NAME")
    try:
        spec = from_config(config, called, mtp=mtp)
    except InstanceError as error:
        raise InstanceError(f"{path}: {error}") from None
    rows = []
    if spec.mtp_layers:
        what, change = "layers that predict further tokens", "-o mtp=false"
        told = str(spec.mtp_layers), "num_nextn_predict_layers"
        rows.append(Assumption(what, *told, f"{change}, which leaves them out"))
    if gaps := remarks(config):
        file, count = "config.json", f"{spec.total_parameters / 1e9:.4g}B"
        rows += [Assumption("not modelled", gap, file, _CHANGE) for gap in gaps]
        file += ", as far as it is modelled"
        rows.append(Assumption("parameters in all", count, file, _CHANGE))
    return {
        "source": f"configuration {path.name}",
        "model": spec.model_dump(mode="json", exclude_none=True, exclude_defaults=True),
        "assumed": rows,
    }
