"""Options of planners: what `plan` of a planner takes beside `seed` and `deadline`."""

from collections.abc import Mapping
from inspect import signature
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, create_model

from .. import registry
from ..errors import Unsupported
from ..text.complaints import validated

_OF_ALL = ("data", "seed", "deadline")


def record(planner: str) -> type[BaseModel]:
    """A record of the planner's options, with their defaults."""
    plan = registry.entry("planners", planner).plan
    hints = get_type_hints(plan, include_extras=True)
    fields: dict[str, Any] = {
        name: (hints[name], parameter.default)
        for name, parameter in signature(plan).parameters.items()
        if name not in _OF_ALL
    }
    config = ConfigDict(extra="forbid", strict=True)
    return create_model(planner, __config__=config, **fields)


def checked(planner: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, as `plan` takes them.

    `InstanceError` says what is wrong with them, `Unsupported` that there are none.
    """
    known = record(planner)
    if given and not known.model_fields:
        raise Unsupported(f"planner {planner} has no options: leave them out")
    options = validated(known, dict(given), f"options of {planner}", file="")
    return {name: getattr(options, name) for name in given}


def defaults(planner: str) -> dict[str, Any]:
    """Every option of the planner and its default."""
    return record(planner)().model_dump()
