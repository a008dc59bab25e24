"""NeMo: what its training prints of each step; it tells nothing else of a run.

    Training epoch 0, iteration 5/99 | lr: 1e-05 | global_batch_size: 128 |
        global_step: 5 | reduced_train_loss: 11.03 | train_step_timing in s: 14.2
    Epoch 0: :   5%| | 5/100 [01:11<..., train_step_timing in s=14.20]

(NeMo 1.20 to 2.4, which times the steps by themselves; each stands in one line.)
"""

import re

from .facts import Facts, Given
from .logs import NUMBER, Trainer
from .source import Source

_STEP = re.compile(rf"train_step_timing in s[:=] {{0,4}}{NUMBER}")
_BATCH = re.compile(r"global_batch_size[:=] {0,4}([0-9]{1,9})")


def _readings(source: Source, batch: int | None) -> list[float]:
    found = [_STEP.search(line.text) for line in source.lines]
    return [float(match[1]) for match in found if match is not None]


def _read(source: Source, facts: Facts, given: Given) -> None:
    for line in source.lines:
        if _STEP.search(line.text) and (match := _BATCH.search(line.text)):
            facts.add(line.place, {"gbs": int(match[1])})


FORM = Trainer(
    name="nemo",
    title="NeMo",
    marks=(("train_step_timing in s",),),
    read=_read,
    readings=_readings,
    told={"framework": "NeMo"},
).form
