"""The rows of a job trace: cells by column, and what is wrong with them by line."""

import re
from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from ...catalogue import models
from ...errors import InstanceError
from ...schema import LONGEST_NAME, name_fault
from ...text import columns, units
from ...text.complaints import listed, nearest, shown
from ...text.parsing import read_table, whole_number

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
MOST = {"samples": 10**12, "steps": 10**7, "tokens": 10**15}
CHOOSE = "choose"
#: What others call our columns: sacct, and public traces of clusters.
NAMES = {
    "job": ("job_id", "job_name", "jobid", "name", "id"),
    "submit_s": (
        *("submit", "submit_time", "submission_time", "submitted", "submitted_time"),
        *("arrival", "arrival_time", "submit_timestamp", "timestamp"),
        *("creation_time", "time"),
    ),
    "gpus": (
        *("num_gpus", "gpu_num", "gpu_count", "num_gpu", "n_gpus", "gpu"),
        *("requested_gpus", "gpus_requested", "alloc_tres", "req_tres"),
    ),
    "duration_s": (
        *("duration", "runtime", "run_time", "elapsed", "elapsed_raw", "service_time"),
    ),
}
_TRES = re.compile(r"gres/gpu(:[^=,]{1,60})?=([0-9]{1,9})")
_STEP = re.compile(r"[0-9_]+\.\w+")  # a step of a job, in a list of sacct
#: Columns whose whole numbers may have a unit, as in 200M tokens.
_QUANTITIES = {
    **dict.fromkeys(("tokens", "samples", "steps"), units.COUNT),
    **dict.fromkeys(("sequence_length", "batch"), units.LENGTH),
}
WORK = ("duration_s", "gpu_hours", "samples", "steps", "tokens")


class Work(NamedTuple):
    """Work is so many `gpu_hours`, `samples`, `steps` or `tokens` that a job trains."""

    unit: str
    amount: float


class Row(NamedTuple):
    """A job of a trace as it stands there; None where it says nothing.

    `gpus` is None for `choose`; `lora_rank` is 0 where LoRA has no rank given.
    """

    name: str
    submit_s: float
    gpus: int | None
    work: Work
    model: str | None
    batch: int | None
    sequence: int | None
    training: str | None
    lora_rank: int
    line: str

    @property
    def names_a_model(self) -> bool:
        """Return whether the model is one of ours to train, not one of Pollux's."""
        return self.model is not None and self.model not in CATEGORY


def read(
    path: str | Path, where: Mapping[str, str] | None = None
) -> tuple[list[Row], int]:
    """Return the jobs of a trace in its order, and how many more have no GPUs.

    `where` keeps the rows with these cells. Every wrong cell is an `InstanceError` with
    file, line, column, what was found, what was expected and the remedy.
    """
    place = Path(path)
    table, where = read_table(place), where or {}
    known_columns = columns.known(table.columns, NAMES)
    known = {*table.columns, *known_columns}
    if missing := sorted(set(where) - known):
        raise InstanceError.at(
            place,
            None,
            f"found no column {listed(missing)} to choose rows by, expected one of "
            f"{listed(table.columns)}; correct the choice",
        )
    if not {"submit_s", "gpus"} <= known or known.isdisjoint(("model", *WORK)):
        raise InstanceError.at(
            place,
            None,
            f"found the columns {listed(table.columns)}, expected "
            "submit_s,duration_s,gpus or submit_s,model,gpus and one of "
            f"{', '.join(WORK)}; rename them",
        )
    rows, without = [], 0
    for number, (line, cells) in enumerate(
        columns.with_names(table, known_columns).rows
    ):
        if any(cells[column] != wanted for column, wanted in where.items()):
            continue
        if _STEP.fullmatch(cells.get("job") or "") and "JobID" in cells:
            continue
        job = _Cells(place, line, cells, known_columns)
        if job.has_gpus:
            rows.append(job.row(number))
        else:
            without += 1
    if not rows:
        others = f" but {without} without GPUs" if without else ""
        raise InstanceError.at(
            place, None, f"found no jobs{others}, expected one a line; add some"
        )
    return rows, without


def renamed(path: str | Path) -> dict[str, str]:
    """Return which columns of a trace are read as which of ours, with their unit."""
    found = columns.known(read_table(Path(path)).columns, NAMES)
    told = {
        **{86_400.0: ", in days", 3600.0: ", in hours", 60.0: ", in minutes"},
        0.001: ", in milliseconds",
    }
    return {
        one.name: f"{ours}{told.get(one.unit_s, '')}"
        for ours, one in found.items()
        if ours != one.name
    }


def is_path(model: str) -> bool:
    """Return whether a model is a file, not a name of the catalogue."""
    return "/" in model or "\\" in model or model.endswith(".json")


class _Cells:
    """The cells of one line; what is wrong with one is said with its place."""

    def __init__(
        self,
        file: Path,
        line: int,
        cells: dict[str, str | None],
        units: Mapping[str, columns.Column],
    ) -> None:
        self.file, self.line, self.cells = file, f"line {line}", cells
        self.units = units

    @property
    def has_gpus(self) -> bool:
        """Return whether the job asks for GPUs; traces of clusters have others, too."""
        text = self.text("gpus")
        return text != "" and whole_number(text) != 0

    def row(self, number: int) -> Row:
        name = self.text("job") or f"job{number}"
        if name_fault(name):
            expected = f"a line of up to {LONGEST_NAME} printable characters"
            raise self.refuse("job", expected, "rename the job")
        submit, gpus, model = self.number("submit_s", 0), self.gpus(), self.model()
        training = self.training()
        return Row(
            name=name,
            submit_s=submit,
            gpus=gpus,
            work=self.work(model, gpus),
            model=model,
            batch=self.count("batch") if self.text("batch") else None,
            sequence=(
                self.count("sequence_length", 10**7)
                if self.text("sequence_length")
                else None
            ),
            training=training,
            lora_rank=self.rank(training),
            line=self.line,
        )

    def refuse(self, column: str, expected: str, remedy: str) -> InstanceError:
        found = self.cells.get(column)
        said = "nothing" if found is None or not found.strip() else shown(found.strip())
        return InstanceError.at(
            self.file,
            f"{self.line}: {column}",
            f"found {said}, expected {expected}; {remedy}",
        )

    def text(self, column: str) -> str:
        text = (self.cells.get(column) or "").strip()
        if column != "gpus" or "=" not in text:
            return text
        # Slurm's list of what a job has: all its GPUs, else those of each type.
        counts = {kind: int(number) for kind, number in _TRES.findall(text)}
        return str(counts.get("", sum(counts.values())))

    def number(self, column: str, least: float) -> float:
        unit_s = self.units[column].unit_s if column in self.units else 1.0
        value = columns.seconds(self.text(column), unit_s)
        if value is None or not least <= value <= LATEST:
            expected = f"a number from {least:g} to {LATEST:g}"
            raise self.refuse(column, expected, "correct or remove the line")
        return value

    def count(self, column: str, most: int = 100_000, more: str = "") -> int:
        text = self.text(column)
        number: int | Fraction | None = whole_number(text)
        if number is None and column in _QUANTITIES:
            with suppress(ValueError):
                number = units.parse(text, _QUANTITIES[column])
        if number is None or int(number) != number or not 1 <= number <= most:
            expected = f"a whole number from 1 to {most}{more}"
            raise self.refuse(column, expected, "correct or remove the line")
        return int(number)

    def gpus(self) -> int | None:
        if self.text("gpus") == CHOOSE:
            return None
        return self.count("gpus", more=f", or {CHOOSE}")

    def model(self) -> str | None:
        model = self.text("model")
        if not model or model in CATEGORY or model in models() or is_path(model):
            return model or None
        names = [*CATEGORY, *models()]
        expected = f"one of {', '.join(names)}, or the path of a config.json"
        raise self.refuse("model", expected, nearest(model, names))

    def work(self, model: str | None, gpus: int | None) -> Work:
        if model in CATEGORY:
            return Work("gpu_hours", CATEGORY[str(model)])
        given = [column for column in WORK if self.text(column)]
        if not given:
            if set(WORK) & set(self.cells) and not model:
                given = [column for column in WORK if column in self.cells]
                raise self.refuse(given[0], "how long it trains", "fill the cell")
            said = "no model" if model is None else f"model {shown(model)}"
            raise InstanceError.at(
                self.file,
                self.line,
                f"found {said} and no column duration_s, expected how much it trains "
                f"in one of {', '.join(WORK)}; add the column",
            )
        if len(given) > 1:
            raise self.refuse(given[1], f"nothing beside {given[0]}", "clear one cell")
        (unit,) = given
        if unit == "gpu_hours":
            return Work(unit, self.number(unit, 0))
        if unit != "duration_s":
            return Work(unit, self.count(unit, MOST[unit]))
        if gpus is None:
            raise self.refuse(
                "gpus",
                "a number beside duration_s",
                f"give the number, or one of {', '.join(WORK[1:])} for duration_s",
            )
        self.refuse_untold_unit(unit)
        return Work("gpu_hours", self.number(unit, 0) * gpus / 3600)

    def refuse_untold_unit(self, duration: str) -> None:
        """Refuse a bare number beside moments in milliseconds: it may be either."""
        name = self.units[duration].name if duration in self.units else duration
        if (
            columns.tells_unit(name)
            or not self.text(duration).replace(".", "").isdigit()
        ):
            return
        if columns.in_milliseconds(self.text("submit_s")):
            raise self.refuse(
                name,
                "a unit in the name of the column, as moments are in milliseconds",
                f"name it {name}_s or {name}_ms",
            )

    def training(self) -> str | None:
        text = self.text("training")
        if text not in ("", "full", "lora"):
            raise self.refuse(
                "training",
                "full or lora",
                "other ways, QLoRA's 4-bit weights among them, are not modelled",
            )
        return text or None

    def rank(self, training: str | None) -> int:
        if not self.text("lora_rank"):
            return 0
        if training != "lora":
            raise self.refuse(
                "lora_rank", "no rank without training lora", "clear the cell"
            )
        return self.count("lora_rank", 65_536)
