"""What calls and commands find: one record, printed and written in the same way."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from . import registry
from .errors import cut

if TYPE_CHECKING:
    from .report.figures import Drawing
    from .report.sheet import Sheet


class Finding:
    """A record of this kind prints as its command does, and can be drawn and written.

    `layout` names what lays it out as a sheet: a module of `hetopt.report`, and its
    function where that is not `sheet`.
    """

    _layout: ClassVar[str]

    def __init_subclass__(cls, *, layout: str, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls._layout = layout

    def __repr__(self) -> str:
        sheet = self.sheet()
        told = sheet.answer or "; ".join(map(": ".join, sheet.facts[:1])) or sheet.title
        return f"<{type(self).__name__}: {cut(told, 200)}>"

    def __str__(self) -> str:
        return str(registry.entry("report", "writers").text(self.sheet()))

    def _repr_html_(self) -> str:
        """Return the piece of a page that a notebook shows."""
        return str(registry.entry("report", "writers").page(self.sheet(), whole=False))

    def sheet(self) -> "Sheet":
        """Return the answer, tables and pictures that the command shows."""
        module, _, function = self._layout.partition(".")
        made: Sheet = getattr(registry.entry("report", module), function or "sheet")(
            self
        )
        return made

    def plot(self) -> "Drawing":
        """Return its picture as a Matplotlib figure; `Unsupported` without one."""
        made: Drawing = registry.entry("report", "writers").drawing(self.sheet())
        return made

    def to_json(self) -> Any:
        """Return the document that the command prints with `--json`."""
        return asdict(self)  # type: ignore[call-overload]

    def to_file(self) -> Any:
        """Return the document as a file has it: where there is a plan, a plan file."""
        return self.to_json()

    def write(self, path: Any) -> None:
        """Write a file by its suffix: .html, .md, .csv, .json, or a picture.

        Raises `Unsupported` for another suffix, or a picture of what has none, and
        `CannotWrite`.
        """
        writers = registry.entry("report", "writers")
        writers.write(self.sheet(), self.to_file(), Path(path))


@dataclass(frozen=True, repr=False)
class Entries(Finding, layout="listing.entries"):
    """What there is of a kind: a row for each, with `name` and `description`."""

    kind: str
    rows: tuple[Any, ...]

    def to_json(self) -> list[Any]:
        """Return the rows, a list."""
        return [*self.rows]
