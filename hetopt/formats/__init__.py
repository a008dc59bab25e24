"""Other tools' files: what is read of them, and what is written for them.

A module or package here is a foreign tool. What it can do, it says by the functions
that it or a module in it has, `read`, `claims` or `export` (`contract`), and the first
line of that module's docstring describes the format: TOOL for what reads or writes,
TOOL_plan for what reads plans. `read` without `OPTIONS` beside it makes no importer
(`runs` reads what was measured).

What a target can run is said in `hetopt.schema.targets`, whose rules planners keep to.

Files are data: nothing in them is run, and what is wrong with one is an
`InstanceError` that names file and line. A plan that uses a feature which a target
lacks is refused, never rounded; tests read back what is written (`tests/oracles`).
"""

import warnings
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, cast

from .. import registry
from ..errors import PluginBroken, UnknownName
from ..text.documents import Document
from .contract import Exporter, Importer, PlanReader

_FUNCTIONS = {
    "importer": {"read": "", "claims": "_plan"},
    "exporter": {"export": ""},
    "placer": {"placed": ""},
}
_BESIDE = {"importer": "OPTIONS", "exporter": "export", "placer": "placed"}


def importers() -> dict[str, Importer | PlanReader]:
    """Return the modules that read, by the names of their formats, sorted."""
    return _all("importer")


def exporters() -> dict[str, Exporter]:
    """Return the modules that write, by the names of their targets, sorted."""
    return _all("exporter")


def placers() -> Document:
    """Return the modules that write plans of post-training, by their names, sorted."""
    return _all("placer")


def importer(name: str) -> Importer | PlanReader:
    """Return the module that reads a format; `UnknownName` lists what there is."""
    return cast(Importer | PlanReader, _one("importer", name))


def exporter(name: str) -> Exporter:
    """Return the module that writes for a target; `UnknownName` lists what there is."""
    return cast(Exporter, _one("exporter", name))


def placed(name: str, data: object, plan: object) -> dict[str, str]:
    """Return the files of a plan of post-training for a program, by their names."""
    return cast(dict[str, str], _one("placer", name).placed(data, plan))


def _one(kind: str, name: str) -> Any:
    """Dashes stand for underscores; no other tool is loaded than that of the name."""
    name = name.replace("-", "_")
    tool = name.removesuffix("_plan")
    found = _of_tool(kind, tool) if tool in registry.names("formats") else {}
    if name not in found:
        raise UnknownName(kind, name, list(_all(kind)))
    return found[name]


def _all(kind: str) -> Document:
    """Return all modules of a kind; those of others that are broken are warned of."""
    found: Document = {}
    for tool in registry.names("formats"):
        try:
            found |= _of_tool(kind, tool)
        except PluginBroken as error:
            warnings.warn(str(error), stacklevel=3)
    return dict(sorted(found.items()))


@cache
def _of_tool(kind: str, tool: str) -> Document:
    """Return modules of one tool by the names of formats that they read or write."""
    whole = registry.entry("formats", tool)
    inner = iter_modules(getattr(whole, "__path__", ()), f"{whole.__name__}.")
    found: Document = {}
    for module in (whole, *(import_module(module.name) for module in inner)):
        for function, suffix in _FUNCTIONS[kind].items():
            if hasattr(module, function) and hasattr(module, _BESIDE[kind]):
                found[tool + suffix] = module
    return found
