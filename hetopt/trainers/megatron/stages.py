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
_NAMES, _FIELDS = (LAYOUT, RUNS, EACH, FIRST, LAST), ("division", "stage_layers", "vp")


class Division(NamedTuple):
    """A division is what arguments say of the layers of stages and virtual stages."""

    layout: str | None = None
    runs: int | None = None
    each: int | None = None
    first: int | None = None
    last: int | None = None

    @property
    def is_uneven(self) -> bool:
        """Return whether the arguments themselves divide the layers."""
        return (self.layout, self.first, self.last) != (None, None, None)

    def parts(self, stages: int, layers: int, mtp: int) -> tuple[int, ...]:
        """Return the layers of each virtual stage in the order of the model.

        Layers that predict further tokens are the last. Raises `ValueError`.
        """
        if self.layout is not None:
            held = [
                len(re.findall("[tm]", x)) for x in unrolled(self.layout).split("|")
            ]
            if 0 in held:
                raise ValueError(
                    f"{LAYOUT}: found {quoted(self.layout)}, in which part "
                    f"{held.index(0)} has no layer (only embedding or loss), expected "
                    "one in each: plans here have no such stage"
                )
            return tuple(held)
        count = layers // max(1, self.each) if self.each else stages * (self.runs or 1)
        if self.is_uneven or count == stages:
            ends = self._ends(stages, layers)
            equal = tuple(in_runs(ends, count // stages or 1))
        elif count and layers % count == 0:
            equal = (layers // count,) * count
        else:
            raise ValueError(
                f"found {count} parts of {layers} layers, expected parts of as many "
                "layers; give the layout"
            )
        return (*equal[:-1], equal[-1] + mtp)

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


def layout_of(layers: list[int], mtp: int = 0) -> str:
    """Return the layout of parts with these numbers of layers, `Et*6|t*10|t*4mL`."""
    parts = [f"t*{count}" if count > 1 else "t" * count for count in layers]
    return "E" + "|".join(parts) + "m" * mtp + "L"


def _read(given: Given) -> Fields:
    names = (RUNS, EACH, FIRST, LAST)
    for name in names:
        if name in given and not re.fullmatch("[0-9]{1,12}", given[name]):
            raise BadValue(name, given[name], WHOLE.what)
    numbers = [int(given[name]) if name in given else None for name in names]
    return {"division": Division(given.get(LAYOUT), *numbers)}


def _write(fields: Values) -> Document:
    """Equal stages need nothing but their virtual stages, others a whole layout."""
    runs, mtp = fields.get("vp") or 1, fields.get("mtp_layers") or 0
    *before, last = fields.get("stage_layers") or (0,)
    held = [*before, last - mtp if last else 0]
    if len(set(held)) == 1 and held[0] % runs == 0:
        return {} if runs == 1 else {RUNS: runs}
    return {LAYOUT: layout_of(in_runs(held, runs), mtp)}


def _write_layers_of_runs(fields: Values) -> Document:
    made = _write(fields)
    if runs := made.pop(RUNS, None):
        made[EACH] = fields["layers"] // (fields["pp"] * runs)
    return made


STAGES = Part(_NAMES, _FIELDS, _read, _write)
#: The same for files whose runs of layers are given by their layers.
STAGES_BY_LAYERS = Part(_NAMES, _FIELDS, _read, _write_layers_of_runs)
