"""The module lists what is there, by name; no solver is loaded for it."""

import ast
import json
from importlib.util import find_spec
from pathlib import Path

from .. import registry
from ..errors import UnknownName, Unsupported
from ..findings import Entries
from ..text.documents import Document

#: The kinds of things that `hetopt list` lists, and what they are.
KINDS = {
    "commands": "what the command line does, with arguments and options",
    "instances": "the library of instances, and where each is from",
    "fields": "what an instance's file says, field by field",
    "problems": "what can be asked of an instance",
    "formulations": "problems as mathematics, for any solver",
    "methods": "exact methods, which end with a proof",
    "planners": "heuristics of papers and of our own",
    "policies": "rules that schedule a queue of jobs",
    "backends": "solver libraries",
    "formats": "other tools' files that are read and written",
    "suites": "suites of solves for `hetopt bench`",
    "gpus": "data sheets of cards",
    "machines": "usual machines of these cards",
    "models": "models by name, for `hetopt assemble`, `fit` and `rent`",
    "capabilities": "which method carries which setting",
}
#: The folders of kinds that are called otherwise.
_FOLDER = {"methods": "exact", "policies": "scheduling.policies"}
#: Kinds whose entries are each of a problem.
OF_A_PROBLEM = ("formulations", "methods", "planners")


def list_entries(kind: str | None = None, problem: str | None = None) -> Entries:
    """Return what is available of a kind, by name; without a kind, the kinds.

    Commands are the command line's to list. Raises `UnknownName` for another kind, or
    a problem that is not there.
    """
    if problem is not None:
        if kind not in OF_A_PROBLEM:
            expected = f"expected one of {', '.join(OF_A_PROBLEM)}"
            raise Unsupported(f"--problem with {kind}: {expected}")
        from .. import problems

        problems.get(problem := problem.replace("-", "_"))
    if kind not in (None, *KINDS) or kind == "commands":
        raise UnknownName("kind", str(kind), [*KINDS])
    return Entries(kind or "kinds", tuple(_rows(kind, problem)))


def _rows(kind: str | None, problem: str | None) -> list[Document]:
    """Return objects with `name` and `description`, sorted by name.

    With a `problem`, only those that belong to it, for the kinds of `OF_A_PROBLEM`.
    No kind stands for the kinds. Fields are in the order of an instance's file, cards
    and machines in that of the catalogue. Formats also have a `direction`; problems,
    methods and planners their `options` with the defaults, as `--option` takes them.
    """
    if kind is None:
        return [{"name": name, "description": KINDS[name]} for name in KINDS]
    listers = {"instances": _instances, "formats": _formats, "gpus": _gpus}
    listers |= {"machines": _machines, "models": _models}
    if kind in listers:
        return listers[kind]()
    if kind == "fields":
        from ..files import reference

        return reference.rows()
    if kind == "suites":
        from .suites import known

        return [{"name": n, "description": d} for n, d in sorted(known().items())]
    if kind == "capabilities":
        from .. import capability

        return capability.rows()
    folder = _FOLDER.get(kind, kind)
    entries: list[Document] = [
        {"name": name, "description": _describe(folder, name)}
        for name in registry.names(folder)
    ]
    if kind in OF_A_PROBLEM:
        modules = [(e, registry.entry(folder, e["name"])) for e in entries]
        pairs = [(e, registry.problems_of(module)) for e, module in modules]
        entries = [
            {**entry, "problem": own[0]}
            for entry, own in pairs
            if problem is None or problem in own
        ]
    if kind in ("planners", "methods", "problems"):
        return [{**e, "options": _options(e["name"], folder)} for e in entries]
    return entries


def _describe(folder: str, name: str) -> str:
    package = registry.package_of(folder, name)
    if package is None:
        return _first_line(f"hetopt.{folder}.{name}")
    words = (registry.entry(folder, name).__doc__ or "").partition("\n")[0]
    return f"{words} (of package {package})"


def _formats() -> list[Document]:
    from .. import formats

    return [
        {
            "name": name,
            "description": (module.__doc__ or "").partition("\n")[0],
            "direction": direction,
        }
        for direction, modules in (
            ("import", formats.importers()),
            ("export", formats.exporters() | formats.placers()),
        )
        for name, module in modules.items()
    ]


def _gpus() -> list[Document]:
    from .. import catalogue

    shown = ("maker", "memory_gib", "memory_gbytes_per_s", "tflops", "watts")
    return [
        {
            "name": name,
            "description": card.source,
            **card.model_dump(mode="json", include={*shown}),
            "link_gbytes_per_s": card.link_gbytes_per_s,
            "sources": card.figures,
            "also": [*card.own_names[1:], *card.aliases],
            "machine": catalogue.machine(name).name,
        }
        for name, card in catalogue.gpus().items()
    ]


def _machines() -> list[Document]:
    from .. import catalogue

    shown = {"gpus", "domain", "adapters", "adapter_gbytes_per_s"}
    return [
        {
            "name": name,
            "description": made[0].source,
            **made[0].model_dump(mode="json", include=shown),
            "cards": [one.card for one in made],
            "link_gbytes_per_s": {one.card: one.link_gbytes_per_s for one in made},
        }
        for name, made in catalogue.machines().items()
    ]


def _models() -> list[Document]:
    from ..catalogue import models

    return [
        {"name": name, "description": f"{spec['layers']} layers of {spec['hidden']}"}
        for name, spec in sorted(models().items())
    ]


def _options(name: str, folder: str) -> str:
    from ..api.posing import options_of_problem
    from ..portfolio import options_of

    of_problem = folder == "problems"
    kind = options_of_problem(name) if of_problem else options_of(name, folder)
    defaults = kind().model_dump()
    return " ".join(f"{k}={json.dumps(v)}" for k, v in defaults.items())


def _instances() -> list[Document]:
    from ..files import instance_names, load_instance, load_problem, problem_names

    sources = {name: load_instance(name).source for name in instance_names()}
    sources |= {name: load_problem(name)[1].source for name in problem_names()}
    return [{"name": name, "description": sources[name]} for name in sorted(sources)]


def _first_line(module: str) -> str:
    """First line of a module's docstring, read without importing the module."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]
