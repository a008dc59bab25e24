"""Job traces from a CSV file that the user names; every row becomes a language model.

Two shapes, told apart by the header; other columns are ignored, except `job` (a name):

    submit_s, duration_s, gpus        a job is mapped to a model by its GPU-hours
    submit_s, model, gpus, batch      by its model: one of CATEGORY, whose GPU-hours are
                                      assumed, or a model of the ladder by name, trained
                                      for `duration_s` (a column then) at its own batch

The model of a job of so many GPU-hours is that of RUNGS, or the next smaller one that
the cluster fits. Its work is what the reference GPUs do in that time: the options that
train most a GPU. Batches are those of the ladder (`catalogue.LADDER`): the batch of an
image model says nothing about sequences.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from ..errors import InstanceError, cut, naming
from ..problems.job_scheduling import Assumptions, Data, Job
from ..schema import LONGEST_NAME, Cluster, name_fault, tabled
from ..text.complaints import listed, nearest, shown
from ..text.parsing import read_table
from . import catalogue
from .workloads import samples_for

# GPU-hours up to which a job trains a model; the bounds are Sia's and Pollux's.
RUNGS = (
    (1.0, "bert-base"),
    (10.0, "gpt2"),
    (100.0, "gpt2-medium"),
    (1000.0, "gpt2-xl"),
    (float("inf"), "gpt2-7b"),
)

# GPU-hours of the models of Pollux's trace: the middle of Sia's category of each.
CATEGORY = {
    "ncf": 0.3,
    "cifar10": 0.3,
    "bert": 3.0,
    "deepspeech2": 3.0,
    "yolov3": 30.0,
    "imagenet": 300.0,
}

LATEST = 10.0**9


class Row(NamedTuple):
    """A job of a trace, before it is given a model of ours."""

    name: str
    submit_s: float
    gpus: int
    gpu_hours: float
    model: str | None
    batch: int | None


def read(path: str | Path, where: Mapping[str, str] | None = None) -> list[Row]:
    """The jobs of a trace in its order; `where` keeps the rows with these cells.

    Every wrong cell is an `InstanceError` with file, line, column, what was found, what
    was expected and the remedy.
    """
    place = Path(path)
    table, where = read_table(place), where or {}
    known = set(table.columns)
    if missing := sorted(set(where) - known):
        raise InstanceError.at(
            place,
            None,
            f"found no column {listed(missing)} to choose rows by, expected one of "
            f"{listed(table.columns)}; correct the choice",
        )
    by_time = {"submit_s", "duration_s", "gpus"} <= known and "model" not in known
    if not by_time and not {"submit_s", "model", "gpus", "batch"} <= known:
        raise InstanceError.at(
            place,
            None,
            f"found the columns {listed(table.columns)}, expected "
            "submit_s,duration_s,gpus or submit_s,model,gpus,batch; rename them",
        )
    rows = [
        _row(_Cells(place, line, cells), by_time, number)
        for number, (line, cells) in enumerate(table.rows)
        if all(cells[column] == wanted for column, wanted in where.items())
    ]
    if not rows:
        raise InstanceError.at(
            place, None, "found no jobs, expected one a line; add some"
        )
    return rows


class _Cells:
    """The cells of one line; what is wrong with one is said with its place."""

    def __init__(self, file: Path, line: int, cells: dict[str, str | None]) -> None:
        self.file, self.line, self.cells = file, f"line {line}", cells

    def refuse(self, column: str, expected: str, remedy: str) -> InstanceError:
        found = self.cells.get(column)
        said = "nothing" if found is None or not found.strip() else shown(found.strip())
        return InstanceError.at(
            self.file,
            f"{self.line}: {column}",
            f"found {said}, expected {expected}; {remedy}",
        )

    def text(self, column: str) -> str:
        return (self.cells.get(column) or "").strip()

    def number(self, column: str, least: float) -> float:
        try:
            value = float(self.text(column))
        except ValueError:
            value = float("nan")
        if not least <= value <= LATEST:
            expected = f"a number from {least:g} to {LATEST:g}"
            raise self.refuse(column, expected, "correct or remove the line")
        return value

    def count(self, column: str) -> int:
        text = self.text(column)
        if not text.isdecimal() or not 1 <= int(text) <= 100_000:
            expected = "a whole number from 1 to 100000"
            raise self.refuse(column, expected, "correct or remove the line")
        return int(text)


def _row(cells: _Cells, by_time: bool, number: int) -> Row:
    name = cells.text("job") or f"job{number}"
    if name_fault(name):
        expected = f"a line of up to {LONGEST_NAME} printable characters"
        raise cells.refuse("job", expected, "rename the job")
    submit, gpus = cells.number("submit_s", 0), cells.count("gpus")
    if by_time:
        hours = cells.number("duration_s", 0) * gpus / 3600
        return Row(name, submit, gpus, hours, None, None)
    model, batch = cells.text("model"), cells.count("batch")
    if model in CATEGORY:
        return Row(name, submit, gpus, CATEGORY[model], None, None)
    if model not in catalogue.LADDER:
        expected = f"one of {', '.join([*CATEGORY, *catalogue.LADDER])}"
        known = nearest(model, [*CATEGORY, *catalogue.LADDER])
        raise cells.refuse("model", expected, known)
    if "duration_s" not in cells.cells:
        raise InstanceError.at(
            cells.file,
            cells.line,
            f"found model {shown(model)} and no column duration_s, expected how long "
            "it trains; add the column",
        )
    hours = cells.number("duration_s", 0) * gpus / 3600
    return Row(name, submit, gpus, hours, model, batch)


def queue(
    path: str | Path,
    cluster: Cluster,
    name: str,
    *,
    assumptions: Assumptions | None = None,
    where: Mapping[str, str] | None = None,
    most_gpus: int | None = None,
    jobs: int | None = None,
    load: float | None = None,
    longest_s: float | None = None,
    seed: int = 0,
) -> Data:
    """The queue that a trace poses to a cluster.

    `where` chooses rows by their cells, and `most_gpus` leaves out jobs that ask for
    more; `jobs` takes a seeded sample of as many rows; `longest_s` shortens the work of
    jobs to so many seconds on the GPUs asked for; `load` stretches or shrinks the
    submission times so that the work on offer is that share of what the cluster could
    do until the last submission (`offered`). Raises `InstanceError` for rows that ask
    for more GPUs than the cluster has.
    """
    rows = read(path, where)
    if most_gpus is not None:
        rows = _small(rows, most_gpus, path)
    for number, row in enumerate(rows):
        if row.gpus > cluster.gpu_count:
            raise InstanceError.at(
                path,
                f"job {cut(row.name)!r} (number {number + 1}): gpus",
                f"found {row.gpus}, expected at most {cluster.gpu_count}, all that the "
                "cluster has; remove the job or give a larger cluster",
            )
    if jobs is not None and jobs < len(rows):
        picked = sorted(Random(f"trace {seed}").sample(range(len(rows)), jobs))
        rows = [rows[index] for index in picked]
    if longest_s is not None:
        rows = [
            row._replace(gpu_hours=min(row.gpu_hours, longest_s * row.gpus / 3600))
            for row in rows
        ]
    with naming(path):
        made = Data(
            name=cut(name, 200),
            source=f"jobs of {Path(path).name}, mapped to language models by GPU-hours",
            cluster=cluster,
            models={model: catalogue.job_model(model) for model in catalogue.LADDER},
            jobs=tuple(_unnamed_twice(rows)),
            assumptions=assumptions or Assumptions(),
        )
    sized = _sized(made, rows)
    return sized if load is None else at_load(sized, load)


def _small(rows: list[Row], most_gpus: int, path: str | Path) -> list[Row]:
    left = [row for row in rows if row.gpus <= most_gpus]
    if not left:
        least = min(row.gpus for row in rows)
        raise InstanceError.at(
            path,
            None,
            f"found no job of at most {most_gpus} GPUs, expected one; the smallest "
            f"asks for {least}: raise the limit",
        )
    return left


def _unnamed_twice(rows: list[Row]) -> Iterator[Job]:
    """Jobs by model only; a name that comes again gets its number."""
    seen: set[str] = set()
    first = min(row.submit_s for row in rows)
    for number, row in enumerate(rows):
        name = row.name
        if name in seen:
            again = f"#{number}"
            name = name[: LONGEST_NAME - len(again)] + again
        seen.add(name)
        model = row.model or next(m for top, m in RUNGS if row.gpu_hours <= top)
        fields = {
            "name": name,
            "model": model,
            "batch": row.batch or catalogue.LADDER[model],
            "samples": 1,
            "submit_s": round(row.submit_s - first, 6),
            "gpus": row.gpus,
        }
        yield tabled(Job, f"job number {number + 1}", fields)


def _sized(data: Data, rows: list[Row]) -> Data:
    """Each job with the work of its GPU-hours, on a model that the cluster fits."""
    ladder = [model for _, model in RUNGS]
    jobs = []
    for job, row in zip(data.jobs, rows, strict=True):
        if row.model is None:
            job = _fitted(data, job, ladder[: ladder.index(job.model) + 1])
        if data.refusal(job) is None:
            update = {"samples": samples_for(data, job, row.gpu_hours)}
            job = job.model_copy(update=update)
        jobs.append(job)
    return data.model_copy(update={"jobs": tuple(jobs)})


def _fitted(data: Data, job: Job, ladder: list[str]) -> Job:
    for model in reversed(ladder):
        update = {"model": model, "batch": catalogue.LADDER[model]}
        tried = job.model_copy(update=update)
        if data.refusal(tried) is None:
            return tried
    return job


def offered(data: Data) -> float:
    """Work on offer over what the cluster could do until the last submission.

    Work of a job is the share of the cluster's peak that its cheapest option holds for
    the job's whole length. Infinite where all jobs come at once.
    """
    gpus, count = data.cluster.gpus, data.rates.count
    peak = {name: gpu.peak_tflops * gpu.efficiency for name, gpu in gpus.items()}
    work = 0.0
    for job in data.jobs:
        options = data.rates.options(data.trained(job))
        if options:
            work += job.steps * min(o.step_us * o.gpus * peak[o.gpu] for o in options)
    span_us = max(job.submit_s for job in data.jobs) * 1e6
    whole = sum(peak[name] * count[name] for name in gpus)
    return work / (whole * span_us) if span_us else float("inf")


def at_load(data: Data, load: float) -> Data:
    """The queue with submission times scaled so that `offered` is `load`."""
    factor = offered(data) / load
    if factor == float("inf"):
        return data
    jobs = tuple(
        job.model_copy(update={"submit_s": round(job.submit_s * factor, 3)})
        for job in data.jobs
    )
    return data.model_copy(update={"jobs": jobs})
