"""How Megatron-LM's arguments divide the layers of a model among stages."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from ...errors import quoted
from ...text.documents import Document
from ...text.documents import Fields as Values
from ..table import WHOLE, BadValue, Fields, Given, Part

LAYOUT, RUNS = "pipeline-model-parallel-layout", "num-virtual-stages-per-pipeline-rank"
EACH = "num-layers-per-virtual-pipeline-stage"
FIRST, LAST = (f"decoder-{end}-pipeline-num-layers" for end in ("first", "last"))
#: Of which embedding and loss count as layers.
ENDS = tuple(f"account-for-{end}-in-pipeline-split" for end in ("embedding", "loss"))
_NAMES = (LAYOUT, RUNS, EACH, FIRST, LAST, *ENDS)
_FIELDS = ("division", "stage_layers", "vp", "parts")


class Division(NamedTuple):
    """A division is what arguments say of the layers of stages and virtual stages."""

    layout: str | None = None
    runs: int | None = None
    each: int | None = None
    first: int | None = None
    last: int | None = None
    ends: tuple[int, int] = (0, 0)  # layers that embedding and loss count as

    @property
    def is_uneven(self) -> bool:
        """Return whether the arguments themselves divide the layers."""
        return (self.layout, self.first, self.last, *self.ends) != (*[None] * 3, 0, 0)

    def parts(self, stages: int, layers: int, mtp: int) -> tuple[int, ...]:
        """Return the layers of each virtual stage in the order of the model.

        Layers that predict further tokens are the last. Raises `ValueError`.
        """
        if self.layout is not None:
            letters = unrolled(self.layout).split("|")
            order, wrong = "".join(letters), None
            held = [len(re.findall("[tm]", x)) for x in letters]
            if not re.fullmatch("Et*m*L", order) or order.count("m") != mtp:
                wrong = f"expected E, each layer as t, {mtp} as m, L, in this order"
            elif 0 in held[1:-1]:
                wrong = f"whose part {held.index(0, 1)} has neither layer nor end"
            if wrong is not None:
                raise ValueError(f"{LAYOUT}: found {quoted(self.layout)}, {wrong}")
            return tuple(held)
        layers += sum(self.ends)
        count = layers // max(1, self.each) if self.each else stages * (self.runs or 1)
        if (self.first, self.last) != (None, None) or count == stages:
            equal = tuple(in_runs(self._ends(stages, layers), count // stages or 1))
        elif count and layers % count == 0:
            equal = (layers // count,) * count
        else:
            raise ValueError(
                f"found {count} parts of {layers} layers, expected parts of as many "
                "layers; give the layout"
            )
        parts = [*equal[:-1], equal[-1] + mtp]
        parts[0] -= self.ends[0]
        parts[-1] -= self.ends[1]
        return tuple(parts)

    def _ends(self, stages: int, layers: int) -> tuple[int, ...]:
        ends = [[one] if one else [] for one in (self.first, self.last)]
        between = stages - sum(map(len, ends))
        left = layers - sum(map(sum, ends))
        each, over = divmod(left, between) if between else (0, 0)
        if over or each < 0:
            raise ValueError(
                f"{left} layers are not divisible by {between} stages; give the layout"
            )
        return (*ends[0], *[each] * between, *ends[1])


def in_runs(layers: Sequence[int], runs: int) -> list[int]:
    """Return the layers of every virtual stage, the first of every stage first.

    Of a stage's layers that no number of runs divides, the first runs have one more.
    """
    return [
        count // runs + (run < count % runs) for run in range(runs) for count in layers
    ]


def unrolled(layout: str) -> str:
    """Return a layout of a pipeline without commas and multiplications."""
    text = re.sub(r"[,\s]", "", layout)
    for pattern in (r"\(([^()]*)\)\*(\d{1,4})", r"(.)\*(\d{1,4})"):
        text = re.sub(pattern, lambda one: one[1] * int(one[2]), text)
    return text


def layout_of(layers: Sequence[int], mtp: int = 0) -> str:
    """Return the layout of parts with these numbers of layers, `Et*6|t*10|t*4mL`.

    The last `mtp` of all layers predict further tokens.
    """
    parts, left = [], sum(layers) - mtp
    for count in layers:
        plain = min(count, left)
        left -= plain
        parts.append(f"t*{plain}" if plain > 1 else "t" * plain)
        parts[-1] += "m" * (count - plain)
    return "E" + "|".join(parts) + "L"


def _read(given: Given) -> Fields:
    names = (RUNS, EACH, FIRST, LAST)
    for name in names:
        if name in given and not re.fullmatch("[0-9]{1,12}", given[name]):
            raise BadValue(name, given[name], WHOLE.what)
    runs, each, first, last = (int(given[x]) if x in given else None for x in names)
    ends = int(ENDS[0] in given), int(ENDS[1] in given)
    return {"division": Division(given.get(LAYOUT), runs, each, first, last, ends)}


def _write(fields: Values) -> Document:
    """Equal stages need nothing but their virtual stages, others a whole layout."""
    runs, mtp = fields.get("vp") or 1, fields.get("mtp_layers") or 0
    if parts := fields.get("parts"):
        return {LAYOUT: layout_of(parts, mtp)}
    *before, last = fields.get("stage_layers") or (0,)
    held = [*before, last - mtp if last else 0]
    if len(set(held)) == 1 and held[0] % runs == 0:
        return {} if runs == 1 else {RUNS: runs}
    *parts, end = in_runs(held, runs)
    return {LAYOUT: layout_of([*parts, end + mtp], mtp)}


def _write_layers_of_runs(fields: Values) -> Document:
    made = _write(fields)
    if runs := made.pop(RUNS, None):
        made[EACH] = fields["layers"] // (fields["pp"] * runs)
    return made


STAGES = Part(_NAMES, _FIELDS, _read, _write)
#: The same for files whose runs of layers are given by their layers.
STAGES_BY_LAYERS = Part(_NAMES, _FIELDS, _read, _write_layers_of_runs)
