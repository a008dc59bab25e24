"""hetopt plans the training of large language models on mixed GPUs.

Every plan comes with a proof of how far from optimal it is. The public names are
loaded on first use, so that `import hetopt` stays quick and pulls in no solver.
"""

from ast import ImportFrom, parse
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from . import errors as errors

_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file():
    # A checkout: `formulations` and `instances` are sibling folders of this one.
    __path__.append(str(_root))

if TYPE_CHECKING:
    from .public import *  # noqa: F403

    __version__: str

# The names are those of `public`, which is read, not run: it would load everything.
_HOME = {
    one.name: node.module
    for node in parse((Path(__file__).parent / "public.py").read_text("utf-8")).body
    if isinstance(node, ImportFrom)
    for one in node.names
}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module(f"{__name__}.registry").version()
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names; not what this file imports."""
    return [*__all__, "__version__", "errors"]
