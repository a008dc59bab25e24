"""Logs of a run as it goes: JSON lines, TensorBoard, Weights & Biases.

A word says where: `tensorboard:FOLDER`, `wandb:PROJECT`, or a file, which gets a line
of JSON for each row that is told. The others get the numbers of steps, by the libraries
that write them. A run that goes on adds to what is there; a step that is done again is
told again.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import BackendMissing, InstanceError
from ..text.writing import writable
from .processes import Line, Tell

#: What a step is told of, where it is known.
SCALARS = ("loss", "norm", "rate", "seconds", "memory_mib", "evaluation")
_LIBRARIES = {"tensorboard": "tensorboard", "wandb": "wandb"}


def check(words: Sequence[str]) -> None:
    """Raise what is wrong with the words, before a run starts."""
    for word in words:
        kind, place = _split(word)
        if not place:
            raise InstanceError(
                f"--log: found {word!r}, expected a file, tensorboard:FOLDER or "
                "wandb:PROJECT"
            )
        if kind in _LIBRARIES and find_spec(_LIBRARIES[kind]) is None:
            raise BackendMissing(kind, _LIBRARIES[kind])
        if kind == "lines":
            with writable(place):
                Path(place).parent.mkdir(parents=True, exist_ok=True)
                Path(place).touch()


@contextmanager
def logging(words: Sequence[str], tell: Tell) -> Iterator[Tell]:
    """Return what tells all logs, and `tell` after them.

    A log is opened at the first row: of several hosts the one that leads has it.
    """
    check(words)
    with ExitStack() as stack:
        writers: list[Tell] = []

        def told(row: Line) -> None:
            if not writers:
                writers.extend(_opened(stack, word) for word in words)
            for write in writers:
                write(row)
            tell(row)

        yield told


def _opened(stack: ExitStack, word: str) -> Tell:
    kind, place = _split(word)
    if kind == "tensorboard":
        return _tensorboard(stack, place)
    if kind == "wandb":
        return _wandb(stack, place)

    def write(row: Line) -> None:
        with Path(place).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    return write


def _tensorboard(stack: ExitStack, folder: str) -> Tell:
    writer: Any = import_module("torch.utils.tensorboard").SummaryWriter(folder)
    stack.callback(writer.close)

    def write(step: int, found: dict[str, float]) -> None:
        for name, value in found.items():
            writer.add_scalar(name, value, step)
        writer.flush()

    return partial(_scalars, write)


def _wandb(stack: ExitStack, project: str) -> Tell:
    run: Any = import_module("wandb").init(project=project)
    stack.callback(run.finish)
    return partial(_scalars, lambda step, found: run.log(found, step=step))


def _scalars(write: Callable[[int, dict[str, float]], object], row: Line) -> None:
    """Write the numbers of a step; other rows have none."""
    if "step" in row:
        found = {name: row[name] for name in SCALARS if row.get(name) is not None}
        write(row["step"], found)


def _split(word: str) -> tuple[str, str]:
    """Return the kind of a log, and where it is."""
    kind, colon, place = word.partition(":")
    return (kind, place) if colon and kind in _LIBRARIES else ("lines", word)
