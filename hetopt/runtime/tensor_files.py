"""Opens safetensors files; one that cannot be read is an `InstanceError`."""

from pathlib import Path
from typing import Any

from ..errors import InstanceError
from ..text.parsing import readable


def opened(path: Path, framework: str = "pt") -> Any:
    """Return a file of tensors, whose header the library has checked."""
    from safetensors import SafetensorError, safe_open

    with readable(path, "a file of tensors; check where it lies"):
        try:
            return safe_open(path, framework=framework)
        except SafetensorError as error:
            raise InstanceError(
                f"{path}: found no whole safetensors file ({error}); take another copy"
            ) from None
