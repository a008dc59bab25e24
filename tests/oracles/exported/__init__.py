"""Files that exporters wrote, read as their targets read them; no line is shared.

A module is a target, named as the exporter is:

    validate(files) -> list[str]    the target's own rules that the texts break
    read(files) -> TrainingPlan     the plan that the texts tell
"""

from importlib import import_module
from typing import Any


def reader(target: str) -> Any:
    """The module of a target."""
    return import_module(f"{__name__}.{target}")
