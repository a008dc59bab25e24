"""A folder is a registry: every module in it is an entry, the file name its name."""

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from .errors import UnknownName


@cache
def version() -> str:
    """Of hetopt, as it is installed; of the checkout where it is not."""
    from importlib import metadata  # as long to load as all of this package

    try:
        return metadata.version("hetopt")
    except metadata.PackageNotFoundError:
        import tomllib

        project = Path(__file__).resolve().parent.parent / "pyproject.toml"
        return str(tomllib.loads(project.read_text())["project"]["version"])


def names(folder: str) -> list[str]:
    """Names of the entries of `hetopt.<folder>`, sorted."""
    package = import_module(f"hetopt.{folder}")
    return list(_within(tuple(package.__path__)))


@cache
def _within(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the modules in these folders, which are read once."""
    found = (module.name for module in iter_modules(paths))
    return tuple(sorted(name for name in found if not name.startswith("_")))


def entry(folder: str, name: str) -> ModuleType:
    """The module `hetopt.<folder>.<name>`; `UnknownName` lists what is there.

    Dashes stand for underscores: `metis-plan` is `metis_plan`.
    """
    known = names(folder)
    name = name.replace("-", "_")
    if name not in known:
        kind = folder.rpartition(".")[2]
        one = kind.removesuffix("ies") + "y" if kind.endswith("ies") else kind[:-1]
        raise UnknownName(one, name, known)
    return import_module(f"hetopt.{folder}.{name}")


def entries_for(folder: str, problem: str) -> list[str]:
    """Names of the entries of a folder that work on `problem`."""
    return [name for name in names(folder) if entry(folder, name).problem == problem]
