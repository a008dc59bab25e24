"""Hosts agree on the one that leads a run, by files in the folder of its states.

Every term has a file, and the host that made it leads: it is linked under its name,
which one host alone can do. Who finds the leader gone makes the next term's file. All
hosts see the folder anyway, so no further service is needed, and any host may be lost.
"""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from pydantic import Field

from ..schema import Count, Name, Record
from ..text.complaints import validated
from ..text.parsing import read_tree
from ..text.writing import writable, write_json

HOSTS = "hosts"


class Leader(Record):
    """The host that leads in a term, and where the others reach it."""

    term: Count
    host: Name
    address: Name
    port: Annotated[int, Field(ge=1, le=65535)]


class Election:
    """The terms of a run; `folder` is that of its states."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder, HOSTS)

    def leader(self) -> Leader | None:
        """Return the leader of the newest term; None before the first."""
        while terms := self._terms():
            file = self._file(max(terms))
            with suppress(FileNotFoundError):  # the run just ended
                return validated(Leader, read_tree(file), str(file))
        return None

    def claim(self, leader: Leader) -> bool:
        """Make the file of a term; return whether no other host had done so."""
        draft = self._folder / f".{secrets.token_hex(8)}.tmp"
        with writable(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            write_json(draft, leader.model_dump(mode="json"))
            try:
                os.link(draft, self._file(leader.term))
            except FileExistsError:
                return False
            finally:
                draft.unlink()
        for old in self._terms():
            if old < leader.term - 1:
                self._file(old).unlink(missing_ok=True)
        return True

    def is_led_by(self, leader: Leader) -> bool:
        """Return whether no later term has begun."""
        return max(self._terms(), default=0) == leader.term

    def close(self) -> None:
        """Forget all terms: the run is over."""
        for term in self._terms():
            self._file(term).unlink(missing_ok=True)

    def _terms(self) -> list[int]:
        names = [path.stem for path in self._folder.glob("[0-9]*.json")]
        return [int(name) for name in names if name.isdigit()]

    def _file(self, term: int) -> Path:
        return self._folder / f"{term:06}.json"
