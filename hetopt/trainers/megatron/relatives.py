"""Names that Megatron-LM's relatives have for its options: forks and wrappers."""

from dataclasses import replace

from ...text.documents import Document, own_data
from ..table import Dialect

_TREE = own_data(__file__)


def _dialect(tree: Document) -> Dialect:
    written = {name: part for part, x in tree.pop("written", {}).items() for name in x}
    for part in ("sections", "lacks"):
        tree[part] = frozenset(tree.pop(part, ()))
    return Dialect(**tree, written=written)


#: Names that none of them uses in another sense: of logs, forks and wrappers.
NAMES: dict[str, str] = _TREE.pop("names")
MEGATRON, BRIDGE, _NEMO, SWIFT, FLAGSCALE = map(_dialect, _TREE.values())
_NAMES = {**BRIDGE.names, **_NEMO.names}
NEMO = replace(_NEMO, names=_NAMES, opposite=BRIDGE.opposite)
