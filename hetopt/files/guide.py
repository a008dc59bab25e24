"""The module has what messages about an instance say beside its schema."""

from functools import cache
from pathlib import Path

from ..text.complaints import Guide
from ..text.documents import Document
from ..text.parsing import read_value

_FILE = Path(__file__).with_name("hints.yaml")


@cache
def guide() -> Guide:
    """Return where fields are described, and what to say of what people ask for."""
    groups: list[Document] = read_value(_FILE)
    return Guide(
        place="`hetopt list fields` describes every field",
        hints={name: group["say"] for group in groups for name in group["names"]},
    )
