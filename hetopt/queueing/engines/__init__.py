"""Engines that run jobs of a queue, one module each; the file name is its name.

    OPTIONS                     options of its own by type, as `formats` lists them
    engine(options, folder)     the `Engine`; `folder` is the queue's

An engine that cannot be reached, or refuses a job, raises `EngineFailed`.
"""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

from ...errors import EngineFailed

State = Literal["waiting", "running", "done", "failed", "lost", "cancelled"]
#: Seconds that a command of an engine may take.
PATIENCE_S = 120.0


class Machines(NamedTuple):
    """Machines of an engine: a list that `hetopt assemble` reads, and GPUs of others.

    `taken` are GPUs by node, as the list's importer calls it, that jobs of others have.
    """

    format: str
    text: str
    taken: Mapping[str, int]


class Seen(NamedTuple):
    """An engine reports an attempt; times are seconds since 1970."""

    state: State
    why: str = ""
    started: float | None = None
    ended: float | None = None


class Launch(NamedTuple):
    """An attempt with its files: `words` are those of `hetopt run` behind the plan."""

    key: str
    name: str
    folder: Path
    log: Path
    nodes: Mapping[str, int]
    devices: tuple[int, ...]
    words: Sequence[str]
    port: int
    is_own: bool  # trained by the executor, not by a program of the user


class Engine(Protocol):
    """An engine runs jobs; its own records say what became of them."""

    target: str  # the exporter whose files it takes

    def machines(self, ours: Mapping[str, int]) -> Machines:
        """Return what there is; `ours` are GPUs that this queue's running jobs hold."""

    def options(self, nodes: Mapping[str, int]) -> list[str]:
        """Return options of the exporter, `name=value`, for GPUs of these nodes."""
        return []

    def devices(self, nodes: Mapping[str, int], held: Sequence[int]) -> Sequence[int]:
        """Return the devices to use where the engine itself chooses none."""
        return ()

    def find(self, launch: Launch) -> str | None:
        """Return what the engine calls an attempt; None where it never had it."""

    def launch(self, launch: Launch) -> str:
        """Start an attempt; what the engine calls it."""

    def look(self, attempts: Mapping[str, Path]) -> dict[str, Seen]:
        """Return what became of attempts, by handle; forgotten ones are absent.

        The paths are the folders that they were launched in.
        """

    def end(self, handle: str) -> None:
        """Ask an attempt to save its states and end, and end it where it does not."""


def others(used: Mapping[str, int], ours: Mapping[str, int]) -> dict[str, int]:
    """Return by node what of the GPUs in use is not this queue's."""
    left = {name: count - ours.get(name, 0) for name, count in used.items()}
    return {name: count for name, count in left.items() if count > 0}


def output_of(
    words: Sequence[str], remedy: str, folder: Path | None = None, **env: str
) -> str:
    """Return what a command prints; `EngineFailed` where it fails, with its words.

    It runs in `folder`, or else in this one.
    """
    told = " ".join(words[:3])
    try:
        ended = subprocess.run(
            words,
            env={**os.environ, **env},
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE_S,
            check=False,
        )
    except FileNotFoundError:
        raise EngineFailed(f"{words[0]}: not found here; {remedy}") from None
    except subprocess.TimeoutExpired:
        raise EngineFailed(
            f"{told}: no answer within {PATIENCE_S:g} s; {remedy}"
        ) from None
    if ended.returncode:
        words_of_it = (ended.stderr or ended.stdout).strip().splitlines()
        why = words_of_it[-1] if words_of_it else f"exit code {ended.returncode}"
        raise EngineFailed(f"{told}: {why}; {remedy}")
    return ended.stdout
