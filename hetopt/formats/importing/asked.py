"""The files of a run ask its trainer for settings; edits of them ask for others.

A module that knows the names of a trainer offers, beside `claims`,

    asked(files) -> Asked | None             what files ask; None: not of its trainer
    claimed(asked, data, hosts) -> Claim     the run as a plan of an instance
    words(settings, asked, ranks) -> dict    settings by the trainer's names and values
    CHOICES: Mapping                         values of settings that a run may be given

`words` says each name that a setting has, None for one that is not there then.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ...text.documents import Fields
from ..runs.source import Source
from . import forms, processes, strangers
from .forms import Form

#: Trainers of texts, each a sequence of its own unless something packs them.
_OF_TEXTS = ("transformers", "LLaMA-Factory", "ms-swift", "DeepSpeed", "Accelerate")
_PACKING = frozenset(
    {
        *("packing", "neat_packing", "packed_sequence", "block_size"),
        "packed_sequence_size",
    }
)
_OFF = ("", "none", "null", "false", "0")
_MOST_FOLDERS = 4  # above a file, in which those are looked for that it names


class File(NamedTuple):
    """A file of a run, and what it holds."""

    source: Source
    form: Form

    @property
    def place(self) -> str:
        """Return the file's path, as messages name it."""
        return str(self.source.path)

    def beside(self, name: str) -> Path | None:
        """Return the file that this one names, next to it or below a folder above."""
        folders = [*self.source.path.parents][:_MOST_FOLDERS]
        places = [*(one / name for one in folders), folders[0] / Path(name).name]
        return next(filter(is_there, places), None)


def is_there(path: Path) -> bool:
    """Return whether a path is that of a file."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def commands_first(files: Sequence[File]) -> list[tuple[int, File]]:
    """Return files with their numbers; what a command says goes before its files."""
    return sorted(enumerate(files), key=lambda one: not one[1].form.is_command)


class Asked(NamedTuple):
    """The values of a run by the names of its trainer.

    `written` says as what, and in which of the files, a name stands there, `names` as
    what one would that does not.
    """

    what: str
    files: tuple[File, ...]
    values: Fields
    written: Mapping[str, tuple[int, str]]
    notes: tuple[str, ...] = ()
    names: Mapping[str, str] = MappingProxyType({})

    @property
    def place(self) -> str:
        """Return the paths of all files, as messages name them."""
        return ", ".join(file.place for file in self.files)

    @property
    def hosts(self) -> str:
        """Return the GPUs of ranks in their order, where the files have them."""
        found = (file.form.ranks for file in self.files if file.form.ranks)
        return ",".join(next(found, ()))

    @property
    def unread(self) -> tuple[str, ...]:
        """Return the names in the files that are not read, where they say something.

        A flag of a command says something without a value.
        """
        read = {*self.written.values()}
        read |= {(n, one) for n in range(len(self.files)) for one in processes.NAMES}
        return tuple(
            key
            for number, file in enumerate(self.files)
            for key, value in file.form.values.items()
            if (number, key) not in read
            and value not in (None, {}, [], *([] if file.form.is_command else [""]))
        )

    @property
    def has_short_sequences(self) -> bool:
        """Return whether sequences may be shorter than the length that is asked for."""
        for file in self.files:
            for key, value in file.form.values.items():
                name = key.removeprefix("--").replace("-", "_").rpartition(".")[2]
                is_flag = file.form.is_command and value == ""
                if name in _PACKING and (is_flag or str(value).lower() not in _OFF):
                    return False
                if (name, value) == ("stage", "pt"):  # LLaMA-Factory packs these
                    return False
        return self.what.endswith(_OF_TEXTS)

    def spelled(self, name: str) -> str:
        """Return a name as the files have it, or would have it."""
        number, key = self.written.get(name, (0, ""))
        first = next(iter(self.written.values()), (0, name))
        file = self.files[number if key else first[0]]
        usual = self.names.get(name, name)
        if file.form.is_command:
            word = f"--{key.removeprefix('--') or usual}"
            return (
                word.replace("-", "_").replace("__", "--", 1) if self._lower else word
            )
        if key:
            return key
        return usual.replace("-", "_") if "_" in first[1] else usual

    @property
    def _lower(self) -> bool:
        """Return whether a command has underscores in its flags."""
        return any(
            f"--{key.replace('-', '_')}" in self.files[number].source.text
            for number, key in self.written.values()
            if "-" in key
        )

    def changed(self, words: Fields) -> "Asked":
        """Return the run with other values; those that are None are not there."""
        values = {**self.values, **words}
        kept = {name: value for name, value in values.items() if value is not None}
        return self._replace(values=kept)


def opened(paths: Sequence[Path]) -> tuple[File, ...]:
    """Return the files of a run, read; `FILE.py:FUNCTION` is a function of one.

    `Unsupported` for those of a trainer that no module reads.
    """
    found = []
    for path in paths:
        name, colon, function = str(path).rpartition(".py:")
        source = Source(path)
        if colon:
            source = Source(Path(f"{name}.py"), part=function)
        file = File(source, forms.read(source))
        strangers.refuse(file.form, file.place, source.text)
        found.append(file)
    return tuple(found)
