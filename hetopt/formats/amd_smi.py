"""What AMD's tools say of the GPUs of a host, one file a host, named after it.

    rocm-smi --showproductname --csv     device,Card Series,...  card0,AMD Instinct ...
    amd-smi static --asic --csv     gpu,market_name,...

Of MI250X each die is a GPU, as there. Options are those of all importers of clusters.
"""

import re
from collections.abc import Iterator
from csv import reader
from pathlib import Path

from ..errors import InstanceError
from ..text.documents import Document
from ..text.parsing import read_text
from .importing import clusters
from .importing.clusters import Host

OPTIONS = clusters.OPTIONS
_COMMAND = "rocm-smi --showproductname --csv"
_INDEX, _NAME = ("device", "gpu"), ("card series", "market_name")
_HEADER = re.compile(
    rf"(?mi)^(?:{'|'.join(_INDEX)}),(?:[^,\n]*,)*?(?:{'|'.join(_NAME)})\b[^\n]*$"
)


def _hosts(path: Path) -> list[Host]:
    """Return the machine of a file as hosts; nothing of it is left out."""
    cards = dict(_cards(read_text(path)))
    if not cards or sorted(map(int, cards)) != [*range(len(cards))]:
        raise InstanceError(
            f"{path}: found the GPUs {', '.join(cards) or 'none'}, expected all of a "
            f"host, from 0. Run: {_COMMAND}"
        )
    names = [*cards.values()]
    counts: dict[str | None, int] = {name: names.count(name) for name in names}
    return clusters.parts(path.stem, counts, str(path))


listed = clusters.listing(_hosts)
read = clusters.reader("amd_smi", listed)


def is_one(text: str, tree: Document | None) -> bool:
    """Tell whether a text names GPUs as one of AMD's tools does."""
    return tree is None and _HEADER.search(text) is not None


def _cards(text: str) -> Iterator[tuple[str, str]]:
    if header := _HEADER.search(text):
        names = [name.strip().lower() for name in header[0].split(",")]
        number = next(names.index(name) for name in _INDEX if name in names)
        card = next(names.index(name) for name in _NAME if name in names)
        for row in reader(text[header.end() :].strip().splitlines()):
            if len(row) > max(number, card):
                yield re.sub(r"\D", "", row[number]) or "0", row[card].strip()
