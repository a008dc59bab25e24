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
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ..catalogue import model as model_fields
from ..catalogue import models as presets
from ..catalogue.architectures import from_config
from ..errors import InstanceError, cut, naming
from ..problems.job_scheduling import Assumed, Assumptions, Data, Job, JobModel
from ..schema import LONGEST_NAME, Cluster, CostSettings, ModelSpec, Name, name_fault
from ..text.columns import as_record
from ..text.complaints import listed, nearest, shown
from ..text.documents import own_data
from ..text.parsing import read_table, read_tree, whole_number
from . import catalogue
from .workloads import samples_for

_TREE = own_data(__file__)
#: GPU-hours of the models of Pollux's trace.
CATEGORY: Mapping[str, float] = _TREE["category"]
#: GPU-hours up to which a job trains a model.
RUNGS: Mapping[str, float] = _TREE["rungs"]
BATCH, SEQUENCE, LORA_RANK = 8, 2048, 16  # where the trace does not say
WORK = ("duration_s", "gpu_hours", "samples", "steps", "tokens")
_MOST_SAMPLES = 10**12


def _is_path(model: str) -> bool:
    return "/" in model or "\\" in model or model.endswith(".json")


def _count(most: int) -> Any:
    return Field(ge=1, le=most, description=f"a whole number from 1 to {most}")


_TIME = Field(ge=0, le=1e9, description="a number from 0 to 1e+09")


class Row(BaseModel):
    """A job of a trace as it stands there, None where it says nothing."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)

    line: int
    job: Annotated[Name, Field(description="one line of printable characters")]
    submit_s: Annotated[float, _TIME]
    gpus: Annotated[int, Field(ge=1, le=100_000)] | Literal["choose"] = Field(
        description="a whole number from 1 to 100000, or choose"
    )
    model: str | None = None
    training: Literal["full", "lora"] | None = Field(
        default=None,
        description="full or lora (QLoRA's 4-bit weights are not modelled)",
    )
    lora_rank: Annotated[int | None, _count(65_536)] = None
    batch: Annotated[int | None, _count(100_000)] = None
    sequence_length: Annotated[int | None, _count(10**7)] = None
    duration_s: Annotated[float | None, _TIME] = None
    gpu_hours: Annotated[float | None, _TIME] = None
    samples: Annotated[int | None, _count(_MOST_SAMPLES)] = None
    steps: Annotated[int | None, _count(10**7)] = None
    tokens: Annotated[int | None, _count(10**15)] = None

    @field_validator("model")
    @classmethod
    def _is_known(cls, text: str) -> str:
        known = [*CATEGORY, *presets()]
        if _is_path(text) or text in known:
            return text
        raise ValueError(
            f"found {shown(text)}, expected one of {', '.join(known)}, or the path of "
            f"a config.json; {nearest(text, known)}"
        )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        told = [unit for unit in WORK if getattr(self, unit) is not None]
        if self.model not in CATEGORY and len(told) != 1:
            found = " and ".join(told) or "nothing"
            expected = f"expected one of {', '.join(WORK)}"
            raise ValueError(f"found {found}, {expected}; fill in or clear cells")
        if self.lora_rank is not None and self.training != "lora":
            raise ValueError(
                "lora_rank: found a rank, expected training lora with it; clear it"
            )
        if not self.names_a_model:
            alone = ("training", "samples", "steps", "tokens")
            if beside := [one for one in alone if getattr(self, one) is not None]:
                raise ValueError(
                    f"found {beside[0]} of no model, expected a column model; add it"
                )
        if self.duration_s is not None and self.asked is None:
            raise ValueError(
                "gpus: found choose, expected a number with duration_s; give it, or "
                f"one of {', '.join(WORK[1:])}"
            )
        return self

    @property
    def asked(self) -> int | None:
        """Return the GPUs that are asked for; None where the policy chooses."""
        return None if self.gpus == "choose" else self.gpus

    @property
    def names_a_model(self) -> bool:
        """Return whether the model is one of ours to train, not one of Pollux's."""
        return self.model is not None and self.model not in CATEGORY

    @property
    def hours(self) -> float | None:
        """Return the GPU-hours of its work; None where that is said otherwise."""
        if self.model in CATEGORY:
            return CATEGORY[str(self.model)]
        if self.duration_s is not None:
            return self.duration_s * (self.asked or 1) / 3600
        return self.gpu_hours


def read(
    path: str | Path, where: Mapping[str, str] | None = None
) -> tuple[list[Row], int]:
    """Return the jobs of a trace, and how many more have no GPUs.

    `where` keeps the rows with these cells. Every wrong cell is an `InstanceError` with
    file, line, column, what was found, what was expected and the remedy.
    """
    place, where = Path(path), where or {}
    table = read_table(place)
    columns = {*table.columns}
    needed = {"submit_s", "gpus", *where}
    if not needed <= columns or columns.isdisjoint(("model", *WORK)):
        raise InstanceError.at(
            place,
            None,
            f"found the columns {listed(table.columns)}, expected "
            f"{', '.join(sorted(needed))} and one of {', '.join(('model', *WORK))}; "
            "rename them",
        )
    rows, without = [], 0
    for number, (line, cells) in enumerate(table.rows):
        if any(cells[column] != wanted for column, wanted in where.items()):
            continue
        gpus = (cells["gpus"] or "").strip()
        if gpus == "" or whole_number(gpus) == 0:
            without += 1  # traces of clusters have such jobs, too
            continue
        named = {"line": str(line), "job": cells.get("job") or f"job{number}"}
        rows.append(as_record(Row, place, line, {**cells, **named}))
    if not rows:
        others = f" but {without} without GPUs" if without else ""
        raise InstanceError.at(
            place, None, f"found no jobs{others}, expected one a line; add some"
        )
    return rows, without


@dataclass(frozen=True)
class Sample:
    """A sample of a trace: some of its rows, and how close they come.

    `where` chooses rows by their cells, and `most_gpus` leaves out jobs that ask for
    more; `jobs` takes a seeded sample of as many rows; `load` stretches or shrinks the
    submission times so that the work on offer is that share of what the cluster could
    do until the last submission (`offered_load`).
    """

    where: Mapping[str, str] | None = None
    most_gpus: int | None = None
    jobs: int | None = None
    load: float | None = None
    seed: int = 0


def queue(
    path: str | Path,
    cluster: Cluster,
    name: str,
    *,
    assumptions: Assumptions | None = None,
    costs: CostSettings | None = None,
    sample: Sample | None = None,
) -> Data:
    """Return the queue that a trace poses to a cluster, or a `sample` of the trace.

    Without `assumptions`, jobs that name models are weighed and timed by the cost model
    under `costs`, and a trace without any by Frenzy's MARP. Raises `InstanceError` for
    rows that ask for more GPUs than the cluster has.
    """
    sample = sample or Sample()
    rows, without = read(path, sample.where)
    rows = _choose(rows, path, cluster, sample)
    trainings = _Trainings(Path(path))
    of = [trainings.of(row) for row in rows]
    models = trainings.models
    if assumptions is None:
        assumptions = Assumptions(memory="cost_model" if models else "marp")
        if models and costs is not None:
            assumptions = assumptions.model_copy(update={"costs": costs.by_formula})
    if None in of:
        models = models | {m: catalogue.job_model(m) for m in catalogue.LADDER}
    with naming(path):
        made = Data(
            name=cut(name, 200),
            source=f"jobs of {Path(path).name}",
            cluster=cluster,
            models=models,
            jobs=tuple(_named_once(rows, of)),
            assumptions=assumptions,
        )
    made = _size(made, rows, of)
    trained = {job.model for job in made.jobs}
    assumed = [*trainings.assumed(), *_assumptions_of(made, rows, of)]
    if without:  # their cell of GPUs is empty or 0
        change = "fill the column gpus"
        left = Assumed(what="no GPUs", value="left out", jobs=without, change=change)
        assumed.insert(0, left)
    kept = {key: model for key, model in models.items() if key in trained}
    made = made.model_copy(update={"assumed": tuple(assumed), "models": kept})
    return made if sample.load is None else at_load(made, sample.load)


def _choose(
    rows: list[Row], path: str | Path, cluster: Cluster, sample: Sample
) -> list[Row]:
    if (most := sample.most_gpus) is not None:
        small = [row for row in rows if (row.asked or 1) <= most]
        if not small:
            least = min(row.asked or 1 for row in rows)
            raise InstanceError.at(
                path,
                None,
                f"found no job of at most {most} GPUs, expected one; the smallest "
                f"asks for {least}: raise the limit",
            )
        rows = small
    for row in rows:
        if (row.asked or 1) > cluster.gpu_count:
            raise InstanceError.at(
                path,
                f"line {row.line}: gpus",
                f"found {row.gpus}, expected at most {cluster.gpu_count}, all that the "
                "cluster has; remove the job or give a larger cluster",
            )
    if sample.jobs is None or sample.jobs >= len(rows):
        return rows
    drawn = Random(f"trace {sample.seed}").sample(range(len(rows)), sample.jobs)
    return [rows[index] for index in sorted(drawn)]


# --- what jobs train -------------------------------------------------------------


class Training(NamedTuple):
    """One row trains a key of `models` in the queue, at a batch."""

    key: str
    batch: int


class _Trainings:
    """The models of a trace's rows, and what was filled in of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.models: dict[str, JobModel] = {}
        self._specs: dict[str, ModelSpec] = {}
        self._filled = Counter[tuple[str, str, str]]()

    def assumed(self) -> Iterator[Assumed]:
        """Yield what was filled in, in the order in which it came."""
        for (what, value, change), jobs in self._filled.items():
            yield Assumed(what=what, value=value, jobs=jobs, change=change)

    def _fill(self, what: str, value: str, change: str) -> None:
        self._filled[what, value, change] += 1

    def of(self, row: Row) -> Training | None:
        """Return what a row trains; None where GPU-hours must decide."""
        if not row.names_a_model:
            return None
        label, spec = self._model(str(row.model), row.line)
        length = row.sequence_length
        if length is None:
            usual = label in catalogue.LADDER
            length = catalogue.job_model(label).sequence_length if usual else SEQUENCE
            value = f"{length} tokens ({label})"
            self._fill("sequence length", value, "column sequence_length")
        rank, key = None, label
        if row.training == "lora":
            rank = row.lora_rank or LORA_RANK
            key = f"{label}, LoRA {rank}"
            if row.lora_rank is None:
                self._fill("rank of LoRA", str(rank), "column lora_rank")
        elif row.training is None:
            self._fill("training", "all weights", "column training (full or lora)")
        if key in self.models and self.models[key].sequence_length != length:
            key += f", {length} tokens"
        if key not in self.models:
            try:
                self.models[key] = JobModel(
                    spec=spec, sequence_length=length, lora_rank=rank
                )
            except ValidationError as error:
                why = error.errors(include_url=False)[0]["msg"]
                why = why.removeprefix("Value error, ")
                place = f"line {row.line}: training"
                raise InstanceError.at(self._path, place, why) from None
        batch = row.batch
        if batch is None:
            batch = catalogue.LADDER.get(label, BATCH)
            self._fill("batch", f"{batch} sequences a step ({label})", "column batch")
        return Training(key, batch)

    def _model(self, text: str, line: int) -> tuple[str, ModelSpec]:
        """Return a model and its label: of the catalogue, or of a configuration."""
        where = f"line {line}: model"
        if not _is_path(text):
            if text not in self._specs:
                self._specs[text] = ModelSpec.model_validate(model_fields(text))
            return text, self._specs[text]
        long = text.removeprefix("./")
        short = long.removesuffix("/config.json")
        label = long if short in presets() else short
        if label not in self._specs:
            place, folder = self._path.parent / text, self._path.parent.resolve()
            if not place.resolve().is_relative_to(folder):
                raise InstanceError.at(
                    self._path,
                    where,
                    f"found {shown(text)}, which leads out of the trace's folder, "
                    "expected a path within; copy the configuration there",
                )
            if fault := name_fault(label):
                raise InstanceError.at(self._path, where, fault)
            try:
                tree = read_tree(place)
                with naming(place):
                    self._specs[label] = from_config(tree, label)
            except InstanceError as error:
                raise InstanceError.at(self._path, where, str(error)) from None
        return label, self._specs[label]


def _named_once(rows: Sequence[Row], of: Sequence[Training | None]) -> Iterator[Job]:
    """Yield jobs without their work; a name that comes again gets its number."""
    seen: set[str] = set()
    first = min(row.submit_s for row in rows)
    for number, (row, training) in enumerate(zip(rows, of, strict=True)):
        name = row.job
        if name in seen:
            again = f"#{number}"
            name = name[: LONGEST_NAME - len(again)] + again
        seen.add(name)
        if training is None:
            model = next(one for one, top in RUNGS.items() if (row.hours or 0) <= top)
            training = Training(model, catalogue.LADDER[model])
        yield Job(
            name=name,
            model=training.key,
            batch=training.batch,
            samples=1,
            submit_s=round(row.submit_s - first, 6),
            gpus=row.gpus,
        )


def _size(data: Data, rows: list[Row], of: Sequence[Training | None]) -> Data:
    """Return each job with its work, and those without a model on one that fits."""
    ladder = [*RUNGS]
    jobs = []
    for job, row, training in zip(data.jobs, rows, of, strict=True):
        if training is None:
            job = _fit(data, job, ladder[: ladder.index(job.model) + 1])
        jobs.append(job.model_copy(update={"samples": _samples(data, job, row)}))
    return data.model_copy(update={"jobs": tuple(jobs)})


def _samples(data: Data, job: Job, row: Row) -> int:
    """Sequences to train; 1 where GPU-hours are of a job that never runs."""
    if row.hours is not None:
        return samples_for(data, job, row.hours) if data.refusal(job) is None else 1
    if row.tokens is not None:
        length = data.models[job.model].sequence_length
        return min(_MOST_SAMPLES, -(-row.tokens // length))
    return row.samples or (row.steps or 1) * job.batch


def _fit(data: Data, job: Job, ladder: list[str]) -> Job:
    for model in reversed(ladder):
        update = {"model": model, "batch": catalogue.LADDER[model]}
        tried = job.model_copy(update=update)
        if data.refusal(tried) is None:
            return tried
    return job


# --- what is assumed -------------------------------------------------------------


def _assumptions_of(
    data: Data, rows: list[Row], of: Sequence[Training | None]
) -> Iterator[Assumed]:
    """Yield what is assumed of jobs without a model, and of times and memory."""
    unnamed = [job.model for job, one in zip(data.jobs, of, strict=True) if one is None]
    if unnamed:
        counts = Counter(unnamed).most_common()
        told = ", ".join(f"{count} × {model}" for model, count in counts)
        yield Assumed(
            what="model",
            value=f"GPT-2 or BERT by GPU-hours: {told}",
            jobs=len(unnamed),
            change="column model",
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
