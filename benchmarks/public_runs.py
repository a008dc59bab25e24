"""The model of time against public runs: fits its constants, and leaves runs out.

    python benchmarks/public_runs.py --data FOLDER [--write] [--page]

The folder holds files of runs as `hetopt predict` reads them. `--write` writes the
constants that fit into `hetopt.costs.constants`; `--page` the page and pictures,
results/public_runs.md. Runs of a group are predicted with constants of all the others:
a group is a set, model and card, of BigScience also its degrees. All takes 4 minutes.
"""

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import _pages
import numpy as np
from _clouds import Cloud, draw
from _measuring import RESULTS, publish

from hetopt.costs.constants import Constant, Table, plain, shipped
from hetopt.costs.formulas import memory
from hetopt.costs.runs.description import Described, described
from hetopt.costs.runs.fitting import Fitted, fit, predicted_s
from hetopt.costs.runs.prediction import (
    Prediction,
    fitted_on,
    observed_runs,
    predictions,
    spread,
    spread_after,
)
from hetopt.costs.runs.rows import Run
from hetopt.formats.runs import read
from hetopt.schema.calibration import OF_80_PERCENT

ROOM = Path(__file__).parent.parent / "hetopt" / "costs"
YAML = ROOM / "constants" / "constants.yaml"
Row = dict[str, Any]
Key = Callable[[Run, Described], Hashable]


#: How far the machine of a set may be from others' of its card, a log-deviation: what
#: it deviates by is of that machine alone, and no constant of the model has it.
MACHINE = 0.04
#: Where its authors or others say that it is slower than its card's usual machine.
SLOWER = {"simumax-b200": 0.3}


#: Runs of this project, which do not count as public ones.
NOT_PUBLIC = ("torch-h100",)
#: Further ones of this project that no constant was ever fitted to.
NEVER_FITTED = ("hf-h100", "executor-h100")


class Told(NamedTuple):
    """How far off a run is once others of its system are given."""

    error: float
    inside: bool  # of its 80 % interval


class Study:
    """All public runs that the model can express, and the constants that fit them."""

    def __init__(self, folder: Path) -> None:
        own = Path(__file__).parent / "data" / "runs"
        files = sorted(folder.glob("*.json")) + sorted(own.glob("*.json"))
        self.all = [run for path in files if _is_rows(path) for run in read(path)]
        fitted = [run for run in self.all if run.set not in NEVER_FITTED]
        pairs = [(run, one) for run in fitted for one in observed_runs([run])]
        self.runs = [run for run, _ in pairs]
        priors, self.observed = dict(shipped.priors()), []
        for run, one in pairs:
            place = f"set-{run.set}/{one.described.machine.card}"
            wide = SLOWER.get(run.set or "", MACHINE)
            priors.setdefault(f"system@{place}", Constant(1.0, wide))
            self.observed.append(one._replace(systems=(place,)))
        self.fitted: Fitted = fit(self.observed, priors)
        self.measured = np.exp(self.fitted.measured)
        table = Table({n: c.value for n, c in self.fitted.constants.items()})
        seconds = [predicted_s(table, one.described) for one in self.observed]
        #: By constants that saw all runs, on a usual machine of the card.
        self.in_sample = np.array(seconds)
        self._left_out: dict[Key, Any] = {}
        self._priors: dict[Hashable, dict[str, Constant]] = {}

    def errors(self, predicted: Any) -> Any:
        """Predicted over measured, less one."""
        return predicted / self.measured - 1

    def left_out(self, key: Key) -> Any:
        """Seconds by constants that saw no run of the same key."""
        if key in self._left_out:
            return self._left_out[key]
        found = self._left_out[key] = np.zeros(len(self.runs))
        for rows in self.groups(key).values():
            table = Table(self.fitted.without(rows))
            for row in rows:
                found[row] = predicted_s(table, self.observed[row].described)
        return found

    def groups(self, key: Key) -> dict[Hashable, list[int]]:
        """Rows by key."""
        made: dict[Hashable, list[int]] = defaultdict(list)
        for row, (run, one) in enumerate(zip(self.runs, self.observed, strict=True)):
            made[key(run, one.described)].append(row)
        return made

    def given(self, rows: Sequence[int], mine: Set[int]) -> list[Told]:
        """Return how far off the others of some rows are when `mine` are given.

        Constants without the whole system of the rows are the priors.
        """
        start = self._without(_system(self.runs[rows[0]], self._described(rows[0])))
        told = fitted_on([self.runs[row] for row in mine], start) if mine else start
        table, found = Table(plain(told)), []
        for row in sorted(set(rows) - mine):
            one = self._described(row)
            systems = one.systems(self.runs[row].model)
            error = predicted_s(table, one, systems) / self.measured[row] - 1
            width = OF_80_PERCENT * spread_after(one, systems, told)
            found.append(Told(abs(error), abs(math.log1p(error)) <= width))
        return found

    def _described(self, row: int) -> Described:
        return self.observed[row].described

    def _without(self, system: Hashable) -> dict[str, Constant]:
        """Return what is thought of the constants without the runs of a system."""
        if system not in self._priors:
            values = self.fitted.without(self.groups(_system)[system])
            spreads = self.fitted.constants
            self._priors[system] = {
                name: Constant(x, spreads[name].spread)
                for name, x in values.items()
                if not name.startswith("system@")
            }
        return self._priors[system]


def _is_rows(path: Path) -> bool:
    return path.read_text(encoding="utf-8").lstrip().startswith("[")


def group(run: Run, one: Described) -> Hashable:
    """A configuration group, the runs of which are alike."""
    if run.set in ("bigscience-a100", "bigscience-v100", "bigscience-a100-reshape"):
        return run.set, run.model, run.gpu, run.tp, run.pp
    return run.set, (run.model or "").split(" (")[0], run.gpu


#: Tokens of a sequence from which contexts are long.
LONG = 32768


def kind(run: Run, one: Described) -> str:
    """What sort of run it is."""
    layout = one.layout
    if one.machine.generation == "Volta":
        return "V100"
    if layout.lora:
        return "QLoRA" if layout.frozen_bits else "LoRA"
    if layout.sequence >= LONG:
        return "long context"
    precision = "16 bits" if layout.precision in ("bf16", "fp16") else layout.precision
    return f"{'MoE' if run.experts else 'dense'}, {precision}"


def _line(name: str, errors: Any) -> Row:
    sizes = np.abs(errors)
    return {
        "runs of": name,
        "runs": len(errors),
        "mean error, %": round(100 * float(sizes.mean()), 1),
        "median, %": round(100 * float(np.median(sizes)), 1),
        "bias, %": round(100 * float(errors.mean()), 1),
        "worst, %": round(100 * float(errors[sizes.argmax()])),
    }


def by_set(study: Study) -> Iterator[Row]:
    """By set: constants fitted to all runs, and with the group of a run left out."""
    yield from _by(study, lambda run, one: run.set)


def by_kind(study: Study) -> Iterator[Row]:
    """By kind of run."""
    yield from _by(study, kind)


def _by(study: Study, key: Key) -> Iterator[Row]:
    inside = study.errors(study.in_sample)
    outside = study.errors(study.left_out(group))
    public = [i for i, run in enumerate(study.runs) if run.set not in NOT_PUBLIC]
    parts: dict[Hashable, list[int]] = {"all public runs": public}
    for name, rows in {**parts, **study.groups(key)}.items():
        line = _line(str(name), outside[rows])
        yield {
            "runs of": line.pop("runs of"),
            "runs": line.pop("runs"),
            "fitted: mean error, %": _line("", inside[rows])["mean error, %"],
            **{f"left out: {name}": value for name, value in line.items()},
        }


def more_left_out(study: Study) -> Iterator[Row]:
    """More is left out: a model, a card or a framework."""
    keys: dict[str, Key] = {
        "a group": group,
        "a model": lambda run, one: (run.model or "").split(" (")[0],
        "a card": lambda run, one: one.machine.card,
        "a framework": lambda run, one: one.layout.framework,
    }
    old = np.array([o.described.machine.generation == "Volta" for o in study.observed])
    for name, key in keys.items():
        errors = study.errors(study.left_out(key))
        yield _line(f"{name} left out", errors)
        yield _line(f"{name} left out, without V100", errors[~old])


def repeated(study: Study) -> Iterator[Row]:
    """What was run several times in one configuration, and the least error there is."""
    outside = np.abs(study.errors(study.left_out(group)))
    kinds: dict[str, list[tuple[list[int], float]]] = defaultdict(list, all=[])
    for key, rows in study.groups(_configuration).items():
        if len(rows) < SOME_ALIKE or study.runs[rows[0]].set in NOT_PUBLIC:
            continue
        assert isinstance(key, tuple)
        found = rows, _least(study.measured[rows])
        kinds["all"].append(found)
        kinds[key[0]].append(found)
    for sort, alike in kinds.items():
        rows = [row for one, _ in alike for row in one]
        least = sum(len(one) * error for one, error in alike) / len(rows)
        yield {
            "runs of": sort,
            "configurations": len(alike),
            "runs": len(rows),
            "least error, %": _percent(least),
            "left out: mean error, %": _percent(outside[rows].mean()),
        }


#: Runs of one configuration that say how far equal runs differ.
SOME_ALIKE = 2


def _configuration(run: Run, one: Described) -> Hashable:
    """What every prediction is one and the same of, and how it is counted."""
    part = one
    return kind(run, part), run.set, run.model, part.machine.card, part.layout


def _least(measured: Any) -> float:
    """Return the mean error of the one prediction of some runs that is best for all."""
    return float(min(np.abs(x / measured - 1).mean() for x in measured))


def intervals(study: Study) -> Iterator[Row]:
    """Shares of runs inside their 80 % intervals, left out."""
    off = np.abs(np.log(study.left_out(group) / study.measured))
    for sort, rows in study.groups(kind).items():
        inside = [
            off[i] <= OF_80_PERCENT * spread(study.observed[i].described) for i in rows
        ]
        yield {
            "runs of": sort,
            "runs": len(rows),
            "inside, %": round(100 * float(np.mean(inside))),
        }


def unseen(study: Study) -> Iterator[Row]:
    """Shares inside the 80 % intervals of what no run is known of."""
    noise = shipped.noise()
    keys: dict[str, tuple[float, Key]] = {
        "a card": (noise.card, lambda run, one: one.machine.card),
        "a framework": (noise.framework, lambda run, one: one.layout.framework),
        "a known framework on a known card": (
            noise.system,
            lambda run, one: (one.layout.framework, one.machine.card),
        ),
    }
    own = [spread(one.described, of_kind=True) for one in study.observed]
    for name, (more, key) in keys.items():
        off = np.abs(np.log(study.left_out(key) / study.measured))
        yield {
            "left out": name,
            "runs": len(off),
            "systems": len(study.groups(key)),
            "as if known, %": _percent(np.mean(off <= OF_80_PERCENT * np.array(own))),
            "inside, %": _percent(np.mean(off <= OF_80_PERCENT * np.hypot(own, more))),
        }


def ranking(study: Study) -> Iterator[Row]:
    """Regret: how much slower the layout that is picked is than the best measured."""
    outside = study.left_out(group)
    lines = []
    for key, rows in study.groups(_alternatives).items():
        layouts = _averaged(study, rows, outside)
        if key is None or len(layouts) < SOME:
            continue
        measured, predicted = map(np.array, zip(*layouts, strict=True))
        best = measured.min()
        first = np.argsort(predicted)
        assert isinstance(key, tuple)
        lines.append(
            {
                "set": key[0],
                "model": key[1],
                "GPUs": key[3],
                "layouts": len(layouts),
                "regret, %": _percent(measured[first[0]] / best - 1),
                "best of three, %": _percent(measured[first[:SOME]].min() / best - 1),
                "mean layout, %": _percent(measured.mean() / best - 1),
            }
        )
    yield from lines
    columns = ("regret, %", "best of three, %", "mean layout, %")
    means = {x: round(float(np.mean([line[x] for line in lines])), 1) for x in columns}
    layouts = sum(line["layouts"] for line in lines)
    yield {"set": "all", "model": "", "GPUs": "", "layouts": layouts, **means}


#: Layouts that a group has at the least to be ranked; and how many one would try.
SOME = 3


def _percent(share: Any) -> float:
    return round(100 * float(share), 1)


def _averaged(
    study: Study, rows: list[int], predicted: Any
) -> list[tuple[float, float]]:
    """Seconds measured and predicted of each layout; of equal ones their mean."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for row in rows:
        alike[study.observed[row].described.layout].append(row)
    return [
        (float(study.measured[same].mean()), float(predicted[same].mean()))
        for same in alike.values()
    ]


def _alternatives(run: Run, one: Described) -> Hashable:
    """A job: its layouts differ in how they divide it, not in what they compute."""
    if run.set == "torch-h100" or not run.gbs:
        return None
    return (run.set, run.model, run.heads, run.gpus, run.gpu, run.gbs, run.seq,
            run.precision, run.release, run.task)  # fmt: skip


def own_runs(study: Study) -> Iterator[Row]:
    """Some runs of a system are given: errors of its others, means over systems."""
    for name, key, fewest in (("system", _system, FEWEST), ("job", _job, SOME + 1)):
        groups = [rows for rows in study.groups(key).values() if len(rows) >= fewest]
        for count in (0, 1, SOME, None):
            told = [_told(study, rows, count) for rows in groups]
            means = [np.mean([one.error for one in found]) for found in told]
            inside = [np.mean([one.inside for one in found]) for found in told]
            yield {
                "groups": f"{len(groups)} {name}s",
                "runs given": "all others" if count is None else count,
                "mean error of the others, %": _percent(np.mean(means)),
                "median, %": _percent(np.median(means)),
                "inside, %": round(100 * float(np.mean(inside))),
            }


def _told(study: Study, rows: list[int], count: int | None) -> list[Told]:
    """Return errors over some choices of given runs, which lie evenly among others.

    Without a count a part of the runs is predicted at a time, and all others are given.
    """
    if count == 0:
        return study.given(rows, set())
    found, most = [], len(rows)
    choices = min(DRAWS, most)
    for choice in range(choices):
        if count is None:
            mine = set(rows) - set(rows[choice::choices])
        else:
            first = choice * most // choices
            mine = {rows[(first + most * j // count) % most] for j in range(count)}
        found += study.given(rows, mine)
    return found


#: Runs of a system at the least, for its errors to say something.
FEWEST = 6
#: Choices of given runs of a system: what one run says depends on which it is.
DRAWS = 6


def _system(run: Run, one: Described) -> Hashable:
    """What a user's own runs would be of: a set on a card."""
    return run.set, one.machine.card


def _job(run: Run, one: Described) -> Hashable:
    """One model of a system, in one precision."""
    return run.set, one.machine.card, run.model, one.layout.precision


def weights(study: Study) -> Iterator[Row]:
    """Memory, as each row measured it, and which runs were said not to fit."""
    found: dict[str, list[tuple[Run, Prediction]]] = defaultdict(list, all=[])
    for run, one in zip(study.all, predictions(study.all), strict=True):
        if one.peak_gib is not None:
            found[run.set or ""].append((run, one))
            found["all"].append((run, one))
    for name, pairs in found.items():
        errors = np.array(
            [
                one.peak_gib / run.measured_gib - 1
                for run, one in pairs
                if one.peak_gib and run.measured_gib and not run.oom
            ]
        )
        died = [one for run, one in pairs if run.oom]
        ran = [one for run, one in pairs if not run.oom]
        if not (len(errors) or died):
            continue
        yield {
            "runs of": name,
            "measured": len(errors),
            "mean error, %": _percent(np.abs(errors).mean()) if len(errors) else "",
            "bias, %": _percent(errors.mean()) if len(errors) else "",
            "died": len(died),
            "died, refused": sum(one.fits is False for one in died),
            "ran": len(ran),
            "ran, refused": sum(one.fits is False for one in ran),
        }


def never_fitted(study: Study) -> Iterator[Row]:
    """Runs of one H100 that nothing was fitted to: time, and memory of tensors."""
    found: dict[str, list[tuple[Run, Prediction, Described]]] = defaultdict(list)
    for run, one in zip(study.all, predictions(study.all), strict=True):
        if run.set in NEVER_FITTED and one.iteration_s and run.measured_s:
            what = described(run)
            sort = f"{run.set}: {run.task or ''}, {run.recompute} recomputed"
            found[sort].append((run, one, what))
            found[run.set].append((run, one, what))
    values = Table(plain(shipped.constants()))
    for sort, rows in sorted(found.items()):
        seconds, held = [], []
        for run, one, what in rows:
            seconds.append((one.iteration_s or 0) / (run.measured_s or 1) - 1)
            mib = memory.allocated(memory.peak(values, *what)) / 2**20
            held.append(mib / (run.peak_allocated_mib or 1) - 1)
        inside = [
            (one.low_s or 0) <= (run.measured_s or 0) <= (one.high_s or 0)
            for run, one, _ in rows
        ]
        time = _line(sort, np.array(seconds))
        yield {
            **time,
            "inside, %": round(100 * float(np.mean(inside))),
            "memory: mean error, %": _percent(np.abs(held).mean()),
            "memory: bias, %": _percent(np.mean(held)),
        }


def shares(study: Study) -> Iterator[Row]:
    """What the time of an iteration is made of, means by kind, %."""
    values = Table({n: c.value for n, c in study.fitted.constants.items()})
    for sort, rows in study.groups(kind).items():
        total: dict[str, float] = defaultdict(float)
        for row in rows:
            found = study.observed[row].described.terms(values)
            whole = sum(found.values())
            for name, seconds in found.items():
                total[name] += 100 * seconds / whole / len(rows)
        yield {
            "runs of": sort,
            **{n: round(x, 1) for n, x in total.items() if n != "offload"},
        }


def not_expressed(study: Study) -> Iterator[Row]:
    """Runs of which the model says nothing, and why."""
    found: dict[tuple[str, str], int] = defaultdict(int)
    for run, one in zip(study.all, predictions(study.all), strict=True):
        why = one.not_modelled
        if why is None and run.measured_s is None:
            why = "no time was measured"
        if why is not None:
            found[run.set or "", why] += 1
    for (name, why), count in sorted(found.items()):
        yield {"set": name, "runs": count, "why": why}


def every(study: Study) -> Iterator[Row]:
    """Every run."""
    outside = study.left_out(group)
    for i, run in enumerate(study.runs):
        if run.set == "nanotron-bench":
            continue  # nobody said that these may be passed on
        layout = study.observed[i].described.layout
        yield {
            "set": run.set, "model": run.model, "card": run.gpu, "GPUs": run.gpus,
            "dp tp pp cp ep vp": f"{layout.dp} {layout.tp} {layout.pp} {layout.cp} "
            f"{layout.ep} {layout.vp}", "micro-batch": layout.micro_batch,
            "of them": layout.micro_batches, "sequence": layout.sequence,
            "precision": layout.precision,
            "measured, s": round(float(study.measured[i]), 3),
            "fitted, s": round(float(study.in_sample[i]), 3),
            "left out, s": round(float(outside[i]), 3),
            "error, %": round(100 * float(study.errors(outside)[i]), 1),
        }  # fmt: skip


_HEAD = """# The model of time against public runs

Made by `python benchmarks/public_runs.py --data FOLDER --write --page`. Errors are
predicted / measured - 1, the mean is of their sizes. *Fitted*: constants of all runs.
*Left out*: constants of the runs outside its own group, which is a set, model and card,
of BigScience also its degrees; they are those of the linear model at the optimum,
refitted. Ten runs of one configuration count as much as three. Runs of a set may be
slower than others of their card, as a machine is: that is a factor of the set, which no
prediction has. Jean Zay's and vTrain's machines are known by name: their rows tell no
network.

Some tables that are published as measured are not: the 1,440 runs on single nodes of
vTrain's repository are its simulator's output, exact lines over micro-batches to the
nanosecond. They are left out.

![predicted against measured](public_runs.svg)
"""
_SECTIONS: dict[str, tuple[Callable[[Study], Iterator[Row]], str]] = {
    "by_set": (by_set, ""),
    "by_kind": (by_kind, ""),
    "repeated": (
        repeated,
        "*Least* is the mean error of whatever prediction is best for all runs of a "
        "configuration, release included: no model goes below. On V100 the 52B model "
        "took 125 s on one day and 225 s on another; its authors warn of 40 %.",
    ),
    "more_left_out": (
        more_left_out,
        "A card that is left out has the constants of its generation, or those that "
        "were thought of it before any run. A framework that is left out is predicted "
        "as one that nothing is known of.",
    ),
    "intervals": (intervals, "Wanted are 80 %."),
    "unseen": (
        unseen,
        "Wanted are 80 %. What no run is known of has a wider interval; *as if known* "
        "is what the usual one would have.",
    ),
    "ranking": (
        ranking,
        "Layouts of one job: model, batch and cluster. Times are those of constants "
        "without a run's own group. Of equal layouts it is the mean that counts; on "
        "V100 they differ by up to 38 % among themselves. Two groups make most of it: "
        "in one of 72x14336 a layout is measured as slow for 1,568 sequences (113.0 s) "
        "as for 2,048 (114.1 s); and nanotron is left out whole, whose own constants "
        "alone tell that its pipelines are slow.",
    ),
    "weights": (
        weights,
        "A run is refused where the model gives it less than an even chance to live. "
        "Constants of memory are set by hand: nothing is left out.",
    ),
    "never_fitted": (
        never_fitted,
        "Transformers' Trainer and PEFT (hf-h100) and the executor (executor-h100) on "
        "an H100 80GB HBM3 with random weights, PyTorch 2.11, 2026-11-26; medians of "
        "steps after the second, memory as PyTorch allocated it. What a layer of "
        "transformers keeps was counted anew after these runs were seen (before: 12.2 %"
        " of memory off); so were launches of recomputation, which are a third more, "
        "and what adapters of PEFT pass over (before: 12.3 % of hf-h100's time off). "
        "The bytes of the executor's loss, rotations and AdamW were counted after its "
        "runs were seen, too (before: 10.0 % of time off, 62 % inside). "
        "No constant was fitted to them. What is bound by launches (micro-batches of "
        "512 tokens, small models) is too fast: the host is a virtual machine, with "
        "9 to 10 us from one kernel to the next, and no host's speed is in the model.",
    ),
    "own_runs": (
        own_runs,
        "A system is a set and a card, a job one model of it in one precision; "
        "constants are those without the system. Given runs lie evenly among the "
        "others, in six choices of them, over all of which errors are means. With all "
        "others a sixth is predicted at a time: what no estimate of a system's own "
        "constants goes below by much.",
    ),
    "shares": (shares, ""),
    "not_expressed": (not_expressed, ""),
    "every": (every, "nanotron's rows have no licence and are counted only."),
}


def check_seen(study: Study) -> None:
    """Stop where `shipped.SEEN` is not what the runs are of."""
    found: dict[str, set[str]] = defaultdict(set)
    for one in study.observed:
        found[one.described.layout.framework].add(one.described.machine.card)
    known = {name: set(cards) for name, cards in shipped.SEEN.items()}
    if found != known:
        told = {x: sorted(found.get(x, ())) for x in sorted({*found, *known})
                if found.get(x) != known.get(x)}  # fmt: skip
        raise SystemExit(f"shipped.SEEN is stale; runs are of {told}: write it so")


#: Constants that a fit moves by less than so much of their spread stay as they are.
STILL = 0.2


def write_constants(fitted: Fitted) -> None:
    """Values and spreads into the catalogue, beside priors and reasons."""
    found, known = fitted.constants, shipped.constants()
    lines = []
    for line in YAML.read_text(encoding="utf-8").splitlines():
        name = line.partition(": {")[0]
        if name in found and _has_moved(known[name], found[name]):
            line = re.sub(r"value: [^,]*, spread: [^,]*, ", "", line)
            value, wide = found[name]
            told = f"{{value: {value:.4g}, spread: {wide:.2g}, prior"
            line = line.replace("{prior", told, 1)
        lines.append(line)
    YAML.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _has_moved(known: Constant, found: Constant) -> bool:
    return abs(np.log(found.value / known.value)) >= STILL * found.spread


def picture(study: Study) -> None:
    """Dots of all runs, in and out of sample."""
    outside = study.left_out(group)
    panels: dict[str, list[Cloud]] = {"seconds, fitted": [], "seconds, left out": []}
    sorts: dict[str, list[int]] = defaultdict(list)
    for sort, rows in study.groups(kind).items():
        sorts[str(sort).partition(",")[0]] += rows
    for sort, rows in sorts.items():
        measured = study.measured[rows]
        panels["seconds, fitted"].append(Cloud(sort, measured, study.in_sample[rows]))
        panels["seconds, left out"].append(Cloud(sort, measured, outside[rows]))
    draw(panels, RESULTS / "public_runs.svg")


def main() -> None:
    """Fit, print; write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    study = Study(asked.data)
    if asked.write or asked.page:
        check_seen(study)
    if asked.write:
        write_constants(study.fitted)
    words = [_HEAD]
    for name, (section, why) in _SECTIONS.items():
        rows = list(section(study))
        if name != "every":
            print(f"\n{section.__doc__}", *_pages.table(rows), sep="\n", flush=True)
        words += [f"## {section.__doc__}\n", *_pages.table(rows), f"\n{why}\n"]
    if asked.page:
        picture(study)
        publish("public_runs.md", "\n".join(words))


if __name__ == "__main__":
    main()
