"""Other tools' files: what is read of them, and what is written for them.

A module or package here is a foreign tool. What it can do, it says by the functions
that it or a module in it has, and the first line of that module's docstring describes
the format:

    read(paths, **options) -> dict        import TOOL: a document to write, plain data
    claims(path, data, **options)         import TOOL_plan: the plans of a file, judged
                                          against an instance
    export(data, plan) -> dict[str, str]  export TOOL: texts by file name

Beside `read` and `claims` stands `OPTIONS: dict[str, Any]`, the names of the options
and their types: without it a module is no importer (`runs` reads what was measured).
Beside `export` may stand

    refusals(data, plan) -> list[str]     its reasons not to take names, files, GPUs
    OPTIONS: dict[str, Any]               what `export` is told besides, by name
    RULES: str                            the target whose plans it runs, if not its own
    WITHOUT: frozenset[Feature]           what of that target's features it has not

What a target can run is said in `hetopt.schema.targets`, whose rules planners keep to.

Files are data: nothing in them is run, and what is wrong with one is an
`InstanceError` that names file and line. A plan that uses a feature which a target
lacks is refused, never rounded; tests read back what is written (`tests/oracles`).
"""

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from .. import registry
from ..errors import UnknownName

_FUNCTIONS = {"importer": {"read": "", "claims": "_plan"}, "exporter": {"export": ""}}
_BESIDE = {"importer": "OPTIONS", "exporter": "export"}


def importers() -> dict[str, Any]:
    """The modules that read, by the names of their formats, sorted."""
    return _all("importer")


def exporters() -> dict[str, Any]:
    """The modules that write, by the names of their targets, sorted."""
    return _all("exporter")


def importer(name: str) -> Any:
    """The module that reads a format; `UnknownName` lists what there is."""
    return _one("importer", name)


def exporter(name: str) -> Any:
    """The module that writes for a target; `UnknownName` lists what there is."""
    return _one("exporter", name)


def _one(kind: str, name: str) -> Any:
    """Dashes stand for underscores; no other tool is loaded than that of the name."""
    name = name.replace("-", "_")
    tool = name.removesuffix("_plan")
    found = _of_tool(kind, tool) if tool in registry.names("formats") else {}
    if name not in found:
        raise UnknownName(kind, name, list(_all(kind)))
    return found[name]


def _all(kind: str) -> dict[str, Any]:
    tools = registry.names("formats")
    found = {n: m for tool in tools for n, m in _of_tool(kind, tool).items()}
    return dict(sorted(found.items()))


@cache
def _of_tool(kind: str, tool: str) -> dict[str, Any]:
    """Modules of one tool by the names of formats that they read or write."""
    whole = registry.entry("formats", tool)
    inner = iter_modules(getattr(whole, "__path__", ()), f"{whole.__name__}.")
    modules = [whole, *(import_module(module.name) for module in inner)]
    return {
        tool + suffix: module
        for module in modules
        for function, suffix in _FUNCTIONS[kind].items()
        if hasattr(module, function) and hasattr(module, _BESIDE[kind])
    }
