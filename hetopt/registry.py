"""A folder is a registry: every module in it is an entry, the file name its name.

Other packages add entries to the folders that are `OPEN`, by entry points of the group
`hetopt.FOLDER`; `add` does for this process. What is ours keeps its name.
"""

import warnings
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

from .errors import PluginBroken, UnknownName

#: Folders to which others may add.
OPEN = ("formats", "formulations", "planners", "scheduling.policies")
#: Packages beside the entries of a folder: what several of them are built on.
_HELPERS = frozenset({"checking", "enumeration", "pipelines"})
#: Our planners by the problems of their plans: those of one are named without loading
#: the others, which takes a tenth of a second. A planner in no row is loaded and asked.
_PLANNERS = {
    "training_plan": "alpa_like amp autohet galvatron_like grid harp hexiscale islands "
    "marp megatron metis sailor whale",
    "one_pipeline": "alpa_like amp metis",
    "device_grouping": "autohet_groups equal_groups hexiscale_groups strongest_first",
    "layer_partition": "equal_layers espresso_layers metis_layers proportional_layers "
    "whale_layers",
    "provisioning": "cheapest_per_flop espresso espresso_placer homogeneous_best "
    "hph_plus sia_plus whale_plus",
    "post_training": "newest_trains one_to_one rlinf shared three_to_one",
    "recovery": "autohet_recovery balanced_recovery nearest_recovery varuna",
    "job_round": "first_come greedy_round has sia",
}
_added: dict[str, dict[str, Any]] = {folder: {} for folder in OPEN}


@cache
def version() -> str:
    """Return the version of hetopt, as installed, or of the checkout."""
    from importlib import metadata  # as long to load as all of this package

    try:
        return metadata.version("hetopt")
    except metadata.PackageNotFoundError:
        import tomllib

        project = Path(__file__).resolve().parent.parent / "pyproject.toml"
        return str(tomllib.loads(project.read_text())["project"]["version"])


def names(folder: str) -> list[str]:
    """Names of the entries of `hetopt.<folder>`, sorted.

    With those of other packages where it is open, not with what was `added`.
    """
    own = _own(folder)
    return sorted({*own, *_entry_points(folder)}) if folder in OPEN else own


def known_for(folder: str, problem: str) -> list[str]:
    """`entries_for`, and what this process added: all that can be named."""
    mine = _added.get(folder, {})
    others = [name for name, module in mine.items() if problem in problems_of(module)]
    return entries_for(folder, problem) + sorted(others)


def package_of(folder: str, name: str) -> str | None:
    """The package that brought an entry; None for one of ours."""
    point = _entry_points(folder).get(name) if folder in OPEN else None
    return None if point is None else str(point.dist.name)


def source_of(name: str) -> str | None:
    """The file of an entry that others brought; None for one of ours."""
    for folder in OPEN:
        if name in _added[folder] or name in _entry_points(folder):
            return str(entry(folder, name).__file__)
    return None


def _own(folder: str) -> list[str]:
    package = import_module(f"hetopt.{folder}")
    return list(_within(tuple(package.__path__)))


def add(folder: str, name: str, module: object) -> None:
    """Make a module, or what has its names, an entry, in this process.

    It is found by its name, and asked where it is named alone. Raises `PluginBroken`
    where an entry of ours has the name.
    """
    if name in _own(folder):
        raise PluginBroken(
            f"{name!r} is one of hetopt's own {folder.rpartition('.')[2]}: give yours "
            "another name"
        )
    _added[folder][name] = module


@cache
def _entry_points(folder: str) -> dict[str, Any]:
    from importlib import metadata  # as long to load as all of this package

    own, found = _own(folder), {}
    for point in metadata.entry_points(group=f"hetopt.{folder}"):
        name = point.name.replace("-", "_")
        if name in own or name in found:
            warnings.warn(
                f"{point.value} is left out of {folder}: {name!r} is there already",
                stacklevel=2,
            )
        else:
            found[name] = point
    return found


def _load(folder: str, name: str) -> Any:
    point = _entry_points(folder)[name]
    try:
        return point.load()
    except Exception as error:  # whatever it is, it is not ours
        whose = point.dist.name if point.dist else point.value
        raise PluginBroken(
            f"{name!r} of package {whose} cannot be loaded: {type(error).__name__}: "
            f"{error}; fix or uninstall it"
        ) from error


@cache
def _within(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the modules in these folders, which are read once."""
    found = {module.name for module in iter_modules(paths)} - _HELPERS
    return tuple(sorted(name for name in found if not name.startswith("_")))


def entry(folder: str, name: str) -> Any:
    """The module `hetopt.<folder>.<name>`; `UnknownName` lists what is there.

    Dashes stand for underscores: `metis-plan` is `metis_plan`.
    """
    name = name.replace("-", "_")
    if name in _added.get(folder, ()):
        return _added[folder][name]
    known = names(folder)
    if name not in known:
        kind = folder.rpartition(".")[2]
        one = kind.removesuffix("ies") + "y" if kind.endswith("ies") else kind[:-1]
        raise UnknownName(one, name, known)
    if folder in OPEN and name not in _own(folder):
        return _load(folder, name)
    return import_module(f"hetopt.{folder}.{name}")


def problems_of(module: Any) -> tuple[str, ...]:
    """Return the problem of an entry, and the narrower ones whose plans it makes.

    A planner says these in `narrower`: all of its plans are plans of them.
    """
    return (module.problem, *getattr(module, "narrower", ()))


def entries_for(folder: str, problem: str) -> list[str]:
    """Names of the entries of a folder that work on `problem`.

    Entries of others that cannot be loaded are left out, with a warning.
    """
    found = []
    for name in names(folder):
        problems = _listed_problems().get(name) if folder == "planners" else None
        if problems is None:
            try:
                problems = problems_of(entry(folder, name))
            except PluginBroken as error:
                warnings.warn(str(error), stacklevel=2)
                continue
        if problem in problems:
            found.append(name)
    return found


@cache
def _listed_problems() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for problem, listed in _PLANNERS.items():
        for name in listed.split():
            found[name] = (*found.get(name, ()), problem)
    return found
