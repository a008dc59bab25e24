"""Protocols state what a module of a foreign tool has.

    Importer    read(paths, **options)                  a document of ours, plain data
    PlanReader  claims(path, data, **options)           plans, judged on an instance
    RunReader   a PlanReader that knows a trainer's own names (`importing.asked`)
    Exporter    export(data, plan, **options)           texts by file name
    placed(data, plan)                                  the same, of post-training

`OPTIONS` has the names of options and their types. A module that reads has it, one
that writes where it takes options. Beside `export` there may be `refusals`, `RULES`,
`WITHOUT` and `HELD`, which `Exporter` describes.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ..plans import TrainingPlan
from ..schema import Instance
from ..text.documents import Document, Fields

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

    OPTIONS: Document

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

    OPTIONS: Document

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
