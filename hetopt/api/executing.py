"""Plans run: an executor on PyTorch, on this machine or as one of torchrun's ranks."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import Unsupported
from ..text.complaints import validated
from ..text.writing import writable
from .calling import AnyPlan, AnyProblem, Place
from .judging import posed_training

if TYPE_CHECKING:
    from ..runtime.supervisor import Ran


Heard = Callable[[dict[str, object]], object]


def run(
    plan: AnyPlan,
    instance: AnyProblem | None = None,
    *,
    steps: int,
    data: Place = "synthetic",
    model: Place | None = None,
    progress: Heard | None = None,
    **settings: object,
) -> "Ran":
    """Train by a plan: every one that the judge calls valid runs, or is refused.

    `data` is a corpus of tokens or "synthetic", `model` a `config.json` in place of the
    instance's model, `init` a released model to begin with, whose `config.json` is then
    taken, too. `progress` hears of each step: its loss, the gradients' norm, the
    learning rate, seconds. Further settings are those of `hetopt.runtime.jobs.Settings`
    and `Optimiser`: seed, cpu, precision, checkpoint, every, restarts, elastic, init,
    timeout_s, eval_data, eval_every, eval_batches, log; learning_rate,
    warmup, decay, weight_decay, clip.

    With `elastic` a run goes on without the GPUs whose ranks are gone, by a plan for
    the others; `progress` hears of changes, too (rows with `reason`).

    Raises `BackendMissing` without PyTorch, `InstanceError` for a plan that breaks
    rules, `Unsupported` for what is not run, by name, before anything starts, and
    `RunFailed` where a rank ends early.
    """
    from ..runtime import supervisor
    from ..runtime.elastic import Elastic
    from ..runtime.jobs import Optimiser, Settings, job

    rules = {k: settings.pop(k) for k in [*settings] if k in Optimiser.model_fields}
    if unknown := [name for name in settings if name not in Settings.model_fields]:
        raise Unsupported(f"run: unknown setting {', '.join(unknown)}")
    fields = {"steps": steps, "data": str(data), "optimiser": rules, **settings}
    told = validated(Settings, fields, "run", file="")
    posed = posed_training(plan, instance)
    config = model or told.init
    place = None if config is None else Path(config)
    tell = progress or (lambda row: None)
    if told.log is not None:
        tell = _logged(Path(told.log), tell)
    if told.elastic:
        site = Elastic(*posed, told, place)
        return supervisor.run(site.job, tell, site)
    return supervisor.run(job(*posed, told, place), tell)


def _logged(file: Path, tell: Heard) -> Heard:
    """Return what adds a line of JSON to a file for each row, and tells it on."""
    with writable(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    def told(row: dict[str, object]) -> None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        tell(row)

    return told
