"""The module tells the page what is wrong: where, found, expected, the remedy."""

import re

from ..errors import HetoptError, UnknownName
from ..text.documents import Document

_SAID = re.compile(
    r"found (?P<found>.+?), expected (?P<expected>.+?)(?:; (?P<remedy>[^;]+))?$"
)


class Refusal(Exception):
    """A request that is not done: the status code that says why, and the document."""

    def __init__(self, status: int, document: Document) -> None:
        super().__init__(document["error"]["message"])
        self.status, self.document = status, document


def refusal(
    status: int,
    kind: str,
    *,
    field: str | None = None,
    found: str,
    expected: str,
    remedy: str,
) -> Refusal:
    """A refusal in these words."""
    message = f"found {found}, expected {expected}; {remedy}"
    said = _document(kind, message, field, found, expected, remedy)
    return Refusal(status, said)


def told(error: HetoptError, folder: str | None = None) -> Document:
    """The document of an error of ours; the name of a passing `folder` is left out."""
    message = str(error)
    if folder is not None:
        message = message.replace(f"{folder}/", "")
    first = message.split("\n", 1)[0]
    said = _SAID.search(first)
    parts = said.groupdict() if said else {}
    if isinstance(error, UnknownName):
        name, _, known = first.partition(": expected ")
        parts = {"found": name, "expected": known, "remedy": "choose one of these"}
    return _document(
        error.kind,
        message,
        error.field,
        parts.get("found"),
        parts.get("expected"),
        parts.get("remedy"),
    )


def _document(
    kind: str,
    message: str,
    field: str | None,
    found: str | None,
    expected: str | None,
    remedy: str | None,
) -> dict[str, object]:
    error = {"kind": kind, "message": message, "field": field}
    error |= {"found": found, "expected": expected, "remedy": remedy}
    return {"error": error}
