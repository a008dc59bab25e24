"""Job traces from a CSV file that the user names.

Columns; others are ignored, and what is left out is announced (`Data.assumed`):

    job               a name
    submit_s          when it is submitted
    gpus              what its user asks for, or `choose`: the policy decides; a job
                      with none (0, or an empty cell) is left out
    model             a name of the catalogue, or the path of a `config.json` within the
                      trace's folder; or an image model of Pollux's trace (`CATEGORY`)
    training          `full` or `lora`; lora_rank
    batch             sequences a step, over all GPUs; sequence_length in tokens
    one of duration_s (on the GPUs asked for), gpu_hours, samples, steps, tokens

Columns of sacct and of public traces (`rows.NAMES`) are read as these, which is
announced; times may be time stamps, or Slurm's `1-02:03:04`.

GPU-hours become work by the reference: the options that train most a GPU. A job whose
model nobody names trains GPT-2 or BERT by its GPU-hours, as in Sia's and Frenzy's
experiments: that of RUNGS, or the next smaller one that the cluster fits, at the
ladder's batch (`catalogue.LADDER`). The GPU-hours of Pollux's image models are assumed.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from ...errors import InstanceError, cut, naming
from ...problems.job_scheduling import Assumed, Assumptions, Data, Job
from ...schema import LONGEST_NAME, Cluster, CostSettings, table_record
from .. import catalogue
from ..workloads import samples_for
from .rows import CATEGORY, CHOOSE, MOST, Row, Work, read, renamed
from .training import Fallback, Training, Trainings, label_of

__all__ = [
    "CATEGORY",
    "RUNGS",
    "Fallback",
    "Sample",
    "at_load",
    "label_of",
    "offered_load",
    "queue",
    "read",
]

# GPU-hours up to which a job trains a model; the bounds are Sia's and Pollux's.
RUNGS = (
    (1.0, "bert-base"),
    (10.0, "gpt2"),
    (100.0, "gpt2-medium"),
    (1000.0, "gpt2-xl"),
    (float("inf"), "gpt2-7b"),
)


@dataclass(frozen=True)
class Sample:
    """A sample of a trace: some of its rows, their work and how close they come.

    `where` chooses rows by their cells, and `most_gpus` leaves out jobs that ask for
    more; `jobs` takes a seeded sample of as many rows; `longest_s` shortens the work of
    jobs to so many seconds on the GPUs asked for (one, where the policy chooses);
    `load` stretches or shrinks the submission times so that the work on offer is that
    share of what the cluster could do until the last submission (`offered_load`).
    """

    where: Mapping[str, str] | None = None
    most_gpus: int | None = None
    jobs: int | None = None
    load: float | None = None
    longest_s: float | None = None
    seed: int = 0


def queue(
    path: str | Path,
    cluster: Cluster,
    name: str,
    *,
    assumptions: Assumptions | None = None,
    costs: CostSettings | None = None,
    fallback: Fallback | None = None,
    sample: Sample | None = None,
) -> Data:
    """Return the queue that a trace poses to a cluster, or a `sample` of the trace.

    `fallback` is what jobs train that do not say so. Without `assumptions`, jobs that
    name models are weighed and timed by the cost model under `costs`, and a trace
    without any by Frenzy's MARP. Raises `InstanceError` for rows that ask for more GPUs
    than the cluster has.
    """
    fallback, sample = fallback or Fallback(), sample or Sample()
    rows, without_gpus = read(path, sample.where)
    rows = _choose(rows, path, cluster, sample)
    rows = [_shorten(row, sample.longest_s) for row in rows]
    trainings = Trainings(Path(path), rows, fallback)
    if assumptions is None:
        assumptions = _assumptions(costs) if trainings.models else Assumptions()
    models = trainings.models
    if None in trainings.of:
        models = models | {m: catalogue.job_model(m) for m in catalogue.LADDER}
    with naming(path):
        made = Data(
            name=cut(name, 200),
            source=f"jobs of {Path(path).name}",
            cluster=cluster,
            models=models,
            jobs=tuple(_named_once(rows, trainings.of, path)),
            assumptions=assumptions,
        )
    made = _size(made, rows, trainings.of, sample.longest_s)
    made = made.model_copy(
        update={
            "assumed": (
                *_renamed(path, len(rows)),
                *_without_gpus(without_gpus),
                *trainings.assumed(),
                *_assumptions_of(made, rows, trainings.of),
            ),
            "models": {k: m for k, m in models.items() if k in _names_trained(made)},
        }
    )
    return made if sample.load is None else at_load(made, sample.load)


def _names_trained(data: Data) -> set[str]:
    return {job.model for job in data.jobs}


def _assumptions(costs: CostSettings | None) -> Assumptions:
    """Return the cost model's assumptions, under an instance's settings if given."""
    if costs is None:
        return Assumptions(memory="cost_model")
    return Assumptions(memory="cost_model", costs=costs.by_formula)


def _choose(
    rows: list[Row], path: str | Path, cluster: Cluster, sample: Sample
) -> list[Row]:
    if sample.most_gpus is not None:
        rows = _small(rows, sample.most_gpus, path)
    for number, row in enumerate(rows):
        if (row.gpus or 1) > cluster.gpu_count:
            raise InstanceError.at(
                path,
                f"job {cut(row.name)!r} (number {number + 1}): gpus",
                f"found {row.gpus}, expected at most {cluster.gpu_count}, all that the "
                "cluster has; remove the job or give a larger cluster",
            )
    if sample.jobs is None or sample.jobs >= len(rows):
        return rows
    drawn = Random(f"trace {sample.seed}").sample(range(len(rows)), sample.jobs)
    picked = sorted(drawn)
    return [rows[index] for index in picked]


def _small(rows: list[Row], most_gpus: int, path: str | Path) -> list[Row]:
    left = [row for row in rows if (row.gpus or 1) <= most_gpus]
    if not left:
        least = min(row.gpus or 1 for row in rows)
        raise InstanceError.at(
            path,
            None,
            f"found no job of at most {most_gpus} GPUs, expected one; the smallest "
            f"asks for {least}: raise the limit",
        )
    return left


def _shorten(row: Row, longest_s: float | None) -> Row:
    """The row with GPU-hours of at most so many seconds; see `_size` for the rest."""
    unit, amount = row.work
    if longest_s is None or unit != "gpu_hours":
        return row
    most = longest_s * (row.gpus or 1) / 3600
    return row._replace(work=Work(unit, min(amount, most)))


def _named_once(
    rows: list[Row], of: Sequence[Training | None], path: str | Path
) -> Iterator[Job]:
    """Jobs without their work; a name that comes again gets its number."""
    seen: set[str] = set()
    first = min(row.submit_s for row in rows)
    for number, (row, training) in enumerate(zip(rows, of, strict=True)):
        name = row.name
        if name in seen:
            again = f"#{number}"
            name = name[: LONGEST_NAME - len(again)] + again
        seen.add(name)
        if training is None:
            model = _rung(row, path)
            training = Training(model, catalogue.LADDER[model])
        fields = {
            "name": name,
            "model": training.key,
            "batch": training.batch,
            "samples": 1,
            "submit_s": round(row.submit_s - first, 6),
            "gpus": row.gpus or CHOOSE,
        }
        yield table_record(Job, f"job number {number + 1}", fields)


def _rung(row: Row, path: str | Path) -> str:
    """Return the model of a job that names none, by its GPU-hours."""
    unit, amount = row.work
    if unit != "gpu_hours":
        raise InstanceError.at(
            path,
            f"{row.line}: {unit}",
            f"found {unit} of no model, expected a column model beside it; name one "
            "there or with --model",
        )
    return next(model for top, model in RUNGS if amount <= top)


def _size(
    data: Data,
    rows: list[Row],
    of: Sequence[Training | None],
    longest_s: float | None,
) -> Data:
    """Each job with its work; one that names no model on one that the cluster fits."""
    ladder = [model for _, model in RUNGS]
    jobs = []
    for job, row, training in zip(data.jobs, rows, of, strict=True):
        if training is None:
            job = _fit(data, job, ladder[: ladder.index(job.model) + 1])
        samples = _samples(data, job, row.work)
        given = row.work.unit != "gpu_hours"
        if longest_s is not None and given and data.refusal(job) is None:
            most = longest_s * (row.gpus or 1) / 3600
            samples = min(samples, samples_for(data, job, most))
        jobs.append(job.model_copy(update={"samples": samples}))
    return data.model_copy(update={"jobs": tuple(jobs)})


def _samples(data: Data, job: Job, work: Work) -> int:
    """Sequences to train; 1 where GPU-hours are of a job that never runs."""
    unit, amount = work
    if unit == "gpu_hours":
        return samples_for(data, job, amount) if data.refusal(job) is None else 1
    if unit == "tokens":
        length = data.models[job.model].sequence_length
        return min(MOST["samples"], -(-int(amount) // length))
    return int(amount) * (job.batch if unit == "steps" else 1)


def _fit(data: Data, job: Job, ladder: list[str]) -> Job:
    for model in reversed(ladder):
        update = {"model": model, "batch": catalogue.LADDER[model]}
        tried = job.model_copy(update=update)
        if data.refusal(tried) is None:
            return tried
    return job


def _renamed(path: str | Path, jobs: int) -> Iterator[Assumed]:
    """Yield which columns are read as others, if any are."""
    if names := renamed(path):
        told = "; ".join(f"{name} as {ours}" for name, ours in names.items())
        change = "rename the columns"
        yield Assumed(what="columns", value=told, jobs=jobs, change=change)


def _without_gpus(jobs: int) -> Iterator[Assumed]:
    """Yield that jobs are left out whose cell of GPUs is empty or 0, if there are."""
    if jobs:
        change = "fill the column gpus"
        yield Assumed(what="no GPUs", value="left out", jobs=jobs, change=change)


def _assumptions_of(
    data: Data, rows: list[Row], of: Sequence[Training | None]
) -> Iterator[Assumed]:
    """Yield what is assumed of jobs without a model, and of times and memory."""
    unnamed = [job.model for job, one in zip(data.jobs, of, strict=True) if one is None]
    if unnamed:
        counts = Counter(unnamed).most_common()
        told = ", ".join(f"{count} x {model}" for model, count in counts)
        yield Assumed(
            what="model",
            value=f"GPT-2 or BERT by GPU-hours: {told}",
            jobs=len(unnamed),
            change="column model, or --model",
        )
    if images := sum(row.model in CATEGORY for row in rows):
        yield Assumed(
            what="GPU-hours",
            value="those of Sia's category of each image model of Pollux's trace",
            jobs=images,
            change="columns model and duration_s",
        )
    given, costs = data.assumptions, data.assumptions.costs
    formula = "MARP's formula" if given.memory == "marp" else "the cost model"
    yield Assumed(
        what="memory and times",
        value=f"{formula}; recompute {costs.compute.recompute}, "
        f"{'flash' if costs.compute.flash else 'no flash'} attention, "
        f"{costs.memory.bytes_per_parameter} bytes a parameter, "
        f"{costs.memory.reserve_mib} MiB in reserve",
        jobs=len(data.jobs),
        change="workload.costs of the instance, or assumptions of a queue",
    )


def offered_load(data: Data) -> float:
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
    """Return the queue with submission times scaled so that `offered` is `load`."""
    factor = offered_load(data) / load
    if factor == float("inf"):
        return data
    jobs = tuple(
        job.model_copy(update={"submit_s": round(job.submit_s * factor, 3)})
        for job in data.jobs
    )
    return data.model_copy(update={"jobs": jobs})
