"""The process of one task: solves it, writes one row, and ends with its parent.

Started by `hetopt.bench.process` with the folder that holds `task.json`; leaves
`answer.json` there: the row, and the result document that `hetopt check` takes.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any

import hetopt

from .. import files
from ..api import scheduling
from ..errors import HetoptError, InternalError
from ..modelling import Limits
from ..result import Result
from ..text import writing
from ..text.documents import Document
from ..text.parsing import read_text
from .process import end_descendants
from .records import Task

SIZES: dict[str, tuple[str, Callable[[Any], int]]] = {
    "training_plan": ("GPUs", lambda data: data.planned_cluster.gpu_count),
    "provisioning": ("GPUs offered", lambda data: sum(o.quota for o in data.offers)),
    "device_grouping": ("GPUs", lambda data: data.devices),
    "layer_partition": ("layers", lambda data: len(data.layer_mib)),
    "job_scheduling": ("jobs", lambda data: len(data.jobs)),
}


def main(folder: str) -> None:
    """Do the task of a folder."""
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    task = Task.model_validate_json(read_text(Path(folder, "task.json")))
    writing.write_json(Path(folder, "answer.json"), answered(task))


def answered(task: Task) -> Document:
    """The row of a task, and the document of its plan where there is one.

    What cannot be asked is a row too, `refused`; a bug of ours is one that `crashed`.
    """
    try:
        result = solved(task)
    except InternalError as error:
        return {"row": task.failed("crashed", str(error))}
    except HetoptError as error:
        return {"row": task.failed("refused", str(error))}
    document = result.to_json() | {"instance": task.instance}
    answer: Document = {"row": _row(task, result, document)}
    if result.plan is not None:
        answer["document"] = document
    return answer


def solved(task: Task) -> Result:
    """The result of a task's method on its instance."""
    method = task.method
    limits = Limits(task.time_limit_s, task.gap, task.threads, task.seed)
    problem, data = files.load_problem(task.instance)
    if problem == "job_scheduling":
        return scheduling.schedule(data, [method])[0].result
    if task.backend is not None or method == "exact":
        stated = None if method == "exact" else method
        return hetopt.solve(data, stated, task.backend, limits=limits)
    if method == "plan":
        return hetopt.plan(data, known=False, limits=limits)
    if method.endswith("+improve"):
        return hetopt.plan(
            data, method.removesuffix("+improve"), improve=True, limits=limits
        )
    if problem == "training_plan":
        return hetopt.plan(data, method, limits=limits)
    return hetopt.solve(data, method, limits=limits)


def _row(task: Task, result: Result, document: Document) -> Document:
    unit, size = SIZES.get(result.problem, (None, None))
    copied = (
        *("problem", "digest", "status", "stop", "sense", "unit", "objective"),
        *("objective_exact", "bound", "bound_exact", "bound_source", "proof", "gap"),
        "reasons",
    )
    trace = [
        [point["seconds"], point["incumbent"], point["bound"]]
        for point in document["trace"]
    ]
    return {
        **task.asked(),
        "size": None if size is None else size(result.data),
        "size_unit": unit,
        **{name: document[name] for name in copied if name in document},
        "by": document["method"],
        "seconds": {**document["seconds"], "trace": trace},
    }


def _end_with_parent(folder: str) -> None:
    """A parent that is killed closes our input; nobody would read the answer then."""
    while os.read(0, 1):
        pass
    end_descendants(os.getpid())
    rmtree(folder, ignore_errors=True)
    os._exit(1)
