"""Writing files: whole or not at all, with the reason where it fails."""

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CannotWrite, InstanceError, cut


def write_json(path: str | Path, document: object) -> None:
    """Write a document as JSON, whole or not at all; NaN and infinities are refused."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def write_text(path: str | Path, text: str) -> None:
    """Write `text` as `write_bytes` does."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def write_bytes(path: str | Path, content: bytes) -> None:
    """Write `content`, whole or not at all: a reader never sees half a file.

    It goes to a new file in the same folder, which then takes the name. A path that is
    a device (`/dev/stdout` of a terminal) is written to directly. `CannotWrite` says
    why a file cannot be written; of a pipe, that nobody may ever read it.
    """
    with writable(path):
        target = Path(os.path.realpath(path))
        if target.is_char_device():
            target.write_bytes(content)
        elif target.exists() and not target.is_file():
            raise OSError(None, "found a pipe, or what is no file")
        else:
            _replace(target, content)


def check_writable(path: str | Path, option: str = "--out") -> None:
    """`CannotWrite` where no file can be written there: asked before hours of work.

    A file that is not there yet is tried with an empty draft beside it.
    """
    words = "expected a file in a folder that exists"
    try:
        if _can_write(Path(os.path.realpath(path))):
            return
    except (OSError, ValueError) as error:
        words = f"cannot be written: {_reason(error)}; {words} and may be written to"
    raise CannotWrite(
        f"{option} {cut(str(path), 200)}: {words}", file=path, field=option
    )


def _can_write(place: Path) -> bool:
    """Return whether a file can be there; the reason why none can be is an error."""
    if place.is_dir() or not place.parent.is_dir():
        return False
    if place.exists() and not place.is_file():
        return place.is_char_device()
    draft = _draft(place)
    draft.touch(exist_ok=False)
    draft.unlink()
    return True


@contextmanager
def writable(path: str | Path) -> Iterator[None]:
    """Writing to `path` within; `CannotWrite`, with the reason, where that fails."""
    try:
        yield
    except InstanceError:
        raise
    except (OSError, ValueError) as error:  # the latter of a name that no file has
        raise CannotWrite.of(
            path,
            f"cannot be written: {_reason(error)}; name a file in a folder that exists "
            "and may be written to",
        ) from None


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _draft(target: Path) -> Path:
    return target.with_name(f".{target.name[:40]}.{secrets.token_hex(6)}.tmp")


def _replace(target: Path, content: bytes) -> None:
    draft = _draft(target)
    try:
        with draft.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
