"""Four Protocols state what a module of a foreign tool has; the registry checks it.

    Importer    read(paths, **options)                  a document of ours, plain data
    PlanReader  claims(path, data, **options)           plans, judged on an instance
    RunReader   a PlanReader that knows a trainer's own names (`importing.asked`)
    Exporter    export(data, plan, **options)           texts by file name

`OPTIONS` has the names of options and their types. A module that reads has it, one
that writes where it takes options. Beside `export` there may be `refusals`, `RULES`,
`WITHOUT` and `HELD`, which `Exporter` describes.
"""

from collections.abc import Iterable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ..errors import PluginBroken
from ..plans import TrainingPlan
from ..schema import Instance
from ..schema.targets import TARGETS, Feature
from ..text.documents import Fields
from .documents import Document, Options, Values

if TYPE_CHECKING:
    from .importing.asked import Asked, File
    from .importing.clusters import Host, LeftOut
    from .importing.placing import Claim, Settings


class Held(NamedTuple):
    """A record names the versions of a tool that exports were checked against.

    `package` is its name in the package index, None where it is no package; `program`
    is what it is called on a machine, where its release cannot be told.
    """

    tool: str
    oldest: str | None = None
    held: tuple[str, ...] = ()
    package: str | None = None
    program: str | None = None


@runtime_checkable
class Importer(Protocol):
    """A module that reads files of a tool as a document of ours.

    It may have more: `NEEDS_PATHS`, False where options name the files;
    `completed(document, options)`, the document put into an instance, and its
    assumptions; `assumed(document, options)`, further assumptions.
    """

    OPTIONS: Options

    def read(self, paths: Sequence[Path], /, **options: Any) -> Document:
        """Return the document; `InstanceError` names file and line of a fault."""


@runtime_checkable
class HostReader(Importer, Protocol):
    """An importer of lists of hosts."""

    def listed(self, paths: Sequence[Path], /) -> tuple[list["Host"], list["LeftOut"]]:
        """Return the hosts of files, and what is left out."""

    def is_one(self, text: str, tree: Document | None, /) -> bool:
        """Tell whether a file is of this tool, by its text or by its JSON or YAML."""


@runtime_checkable
class PlanReader(Protocol):
    """A module that reads plans of a tool."""

    OPTIONS: Options

    def claims(
        self, path: Path, data: Instance, /, **options: Any
    ) -> Iterable["Claim"]:
        """Return the plans of a file, which are judged and never trusted."""


@runtime_checkable
class RunReader(PlanReader, Protocol):
    """A module that knows the names of a trainer; `importing.asked` says more."""

    TRAINER: str

    def asked(self, files: Sequence["File"], /) -> "Asked | None":
        """Return what files ask of the trainer; None where they are not its own."""

    def claimed(self, asked: "Asked", data: Instance, hosts: str = "", /) -> "Claim":
        """Return the run as a plan of an instance."""

    def words(self, settings: "Settings", asked: "Asked", data: Instance, /) -> Fields:
        """Return settings by the trainer's names, None for one that is not there."""

    def choices(self, asked: "Asked", data: Instance, /) -> Mapping[str, Sequence[Any]]:
        """Return the values of settings that the run may be given."""


class Exporter(Protocol):
    """A module that writes plans for a target.

    It may have more: `OPTIONS`; `refusals(data, plan)`, its reasons not to take names,
    files or GPUs; `RULES`, the target of `schema.targets` whose plans it takes, if that
    is not its own name; `WITHOUT`, what of that target's features it lacks; `HELD`, the
    releases that its files were held against.
    """

    def export(
        self, data: Instance, plan: TrainingPlan, /, **options: Any
    ) -> dict[str, str]:
        """Return texts by file name."""


def faults(module: object, function: str) -> list[str]:
    """Return what keeps a module from being what its `function` makes it.

    That is `read`, `claims` or `export`.
    """
    options = getattr(module, "OPTIONS", {})
    if not isinstance(options, Mapping):
        return ["OPTIONS is no mapping of names to types"]
    given = {"read": 1, "claims": 2, "export": 2}[function]
    found = _uncallable(module, function, given, options)
    if function == "export":
        found += _unfit_target(module)
    elif hasattr(module, "asked"):
        rest = {"asked": 1, "claimed": 3, "words": 3, "choices": 2}
        found += [x for name, n in rest.items() for x in _uncallable(module, name, n)]
    return found


def check(module: object, function: str) -> None:
    """Raise `PluginBroken` with all `faults` of a module."""
    if found := faults(module, function):
        name = getattr(module, "__name__", repr(module))
        raise PluginBroken(
            f"{name}: {'; '.join(found)}; fix it (hetopt.formats.contract)"
        )


def _uncallable(
    module: object, name: str, arguments: int, options: Values | None = None
) -> list[str]:
    """Return why a function cannot be called with its arguments and all options."""
    function = getattr(module, name, None)
    if not callable(function):
        return [f"{name} is no function"]
    try:
        signature(function).bind(*[None] * arguments, **dict(options or {}))
    except TypeError as error:
        told = ", ".join(options or ()) or "none"
        return [f"{name} takes {arguments} arguments and options ({told}): {error}"]
    return []


def _unfit_target(module: object) -> list[str]:
    found = []
    if hasattr(module, "refusals"):
        found += _uncallable(module, "refusals", 2)
    if (rules := getattr(module, "RULES", None)) is not None and rules not in TARGETS:
        found.append(f"RULES is {rules!r}, no target of hetopt.schema.targets")
    lacks: Iterable[Any] = getattr(module, "WITHOUT", frozenset())
    if not all(isinstance(one, Feature) for one in lacks):
        found.append("WITHOUT has more than features of hetopt.schema.targets")
    if not isinstance(getattr(module, "HELD", Held("")), Held):
        found.append("HELD is none of hetopt.formats.contract")
    return found
