"""The cost model against measurements: iteration time and peak memory, run by run.

    python benchmarks/fidelity.py [SECTION ...] [--data FOLDER]

The folder, or HETOPT_DATA, holds the measurements of others (`measured/` and
`peer_plans/`; `_fidelity_opt.py` says what they are); sections that need them are left
out without.
Every section appends its rows to results/fidelity.jsonl; results/fidelity.md shows the
latest run of each, results/fidelity.svg its dots. All of it takes about 40 s.
"""

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import _fidelity_hexiscale as hexiscale
import _fidelity_opt as opt
import _fidelity_sections as sections
import _figures
import _pages
from _fidelity_picture import Cloud, draw
from _measuring import RESULTS

LINES, PAGE, PICTURE = "fidelity.jsonl", "fidelity.md", "fidelity.svg"
Row = dict[str, Any]
Section = Callable[[Path], Iterator[Row]]
HEAD = (
    "# Predictions and measurements\n\n"
    "Made by `python benchmarks/fidelity.py`. Errors are (predicted / measured - "
    "1); the mean is of their sizes. `fidelity.jsonl` names machine and versions. "
    "Runs without a profile, by constants fitted to others: `public_runs.md`.\n"
    f"\n![predicted against measured]({PICTURE})\n"
)
SECTIONS: dict[str, tuple[Section, str]] = {
    "opt_350": (
        sections.opt_350,
        "Closed form and simulation take the measured times of single layers and of "
        "the network (a line through its fits) and no constant of a run: they put "
        "together pipeline, transfers and synchronisation. A node has four adapters: "
        "its rate is that of all of them, each ring has one, and each GPU sends whole "
        "activations through its own; parts that the receiver gathers would make "
        "pipelines of four stages 13 % too fast. As before: one adapter's rate for "
        "everything, a gather on top, and memory without the new terms. Micro-batches "
        "of 8 sequences come within 2 %. All errors beyond 5 % are of 1 to 4 "
        "sequences, whose kernels are too short to keep up with: alone, a layer of one "
        "is timed at 1.5 and 1.7 ms on four GPUs, more than on one; runs of one "
        "stage take 14 % less than that, those of four stages as much, and runs of 2 "
        "and 4 sequences 10 and 18 % more. No term of one sign mends that, and none is "
        "fitted. "
        "Memory is derived from the architecture alone; the reserve (CUDA context, "
        "communication buffers, allocator) is what the first run has beside it, for "
        "all others too (without that run the mean error is 2.5 %). Two terms are new: "
        "the flat copy of gradients, and the gradients of the logits. Weighed layers: "
        "the measured memory of layers in its place, without what a backward pass "
        "works with. Analytic: layers timed by their "
        "FLOPs and memory traffic in single precision, one efficiency, at most 1, "
        "fitted on N16_D16 (it ends at 1); it does not know the time to launch "
        "a kernel, which is all that counts at one sequence. The time of the "
        "optimiser is left to memory traffic, 1 ms: as profiled it takes 12 ms, and "
        "the first two runs, of 1 and 32 micro-batches, leave 2.4 ms for all that is "
        "once an iteration. The measured synchronisation of N4_D4 is the iteration "
        "time of another file.",
    ),
    "opt_350_time": (
        sections.opt_350_time,
        "Layers timed as measured in all variants. Updates as profiled, or an "
        "overhead, take the run of one micro-batch, 74 ms in all, much further away.",
    ),
    "opt_350_memory": (
        sections.opt_350_memory,
        "That norms keep outputs in place of inputs is how these runs were made, and "
        "what the measured memory of a layer shows.",
    ),
    "table_5": (
        sections.table_5,
        "The figures of the machine are those of its data sheet, but for the 230 GB/s "
        "that all-reduces attain within a node; the one efficiency is that of the "
        "matrix products. 22B is predicted too fast: its four micro-batches are one, "
        "so that losses, clipping and launches have nothing to hide behind, and its "
        "products are the smallest.",
    ),
    "table_5_fits": (
        sections.table_5_fits,
        "Errors of the seven other rows. Products of larger models are more efficient: "
        "the smallest model's efficiency is too low for the others.",
    ),
    "table_5_terms": (
        sections.table_5_terms,
        "All eight rows. Memory-bound kernels and all-reduces weigh more in the small "
        "models: without them no one efficiency does for all. Leaving out the head or "
        "interleaving brings the mean down by making large models faster: one number "
        "cannot tell which of two errors it hides.",
    ),
    "hexiscale_table_3": (
        hexiscale.table_3,
        "Calibrated as its released planner is: 1.8 x pipeline + 1.65 x "
        "synchronisation, in lockstep, on the paper's peak rates. The paper prints "
        "neither its global batches (we take 512, 512, 1024) nor its plans but one; "
        "where the plan is ours, the difference is that of two plans as well. "
        "Synchronisation weighs less in a larger batch: the settings over 0.7 GB/s "
        "would come out higher.",
    ),
    "hexiscale_case_study": (
        hexiscale.case_study,
        "The plans are the paper's, and so is the batch; what the paper gives is the "
        "estimate of its calibrated simulator.",
    ),
}
NEED_MEASUREMENTS = ("opt_350", "opt_350_time", "opt_350_memory")


def rows(folder: Path) -> Iterator[Row]:
    """Every prediction beside its measurement: what, of which run, both, error in %."""
    if _has_measurements(folder):
        for row in sections.opt_350(folder):
            for what, ours, theirs in (
                ("time, s", "closed form, s", "measured, s"),
                ("simulated time, s", "simulated, s", "measured, s"),
                ("memory, GB", "memory, GB", "measured, GB"),
            ):
                yield _record("OPT-350M", row["run"], what, row[ours], row[theirs])
    for row in sections.table_5(folder):
        name = f"{row['model']}, {row['recompute']}"
        ours, theirs = row["closed form, s"], row["measured, s"]
        yield _record("Megatron-LM", name, "time, s", ours, theirs)
    for row in hexiscale.table_3(folder):
        ours, theirs = row["closed form, %"], row["measured, %"]
        yield _record("HexiScale", row["setting"], "HFU, %", ours, theirs)


def _record(runs: str, run: str, what: str, ours: float, theirs: float) -> Row:
    error = opt.percent(ours, theirs)
    return {
        **{"runs": runs, "run": run, "what": what},
        **{"ours": ours, "theirs": theirs, "error_percent": error},
    }


def _folder(data: Path | None) -> Path:
    return data or Path(os.environ.get("HETOPT_DATA", "."))


def _has_measurements(folder: Path) -> bool:
    return (folder / opt.FILE).is_file()


def _means(found: list[Row]) -> Iterator[str]:
    """Mean, worst and bias of the columns that are errors of single rows."""
    for header in (h for h in found[0] if h.endswith("error, %")):
        errors = [row[header] for row in found if not row.get("fitted")]
        if len(errors) < 3 or header == "mean error, %":
            continue
        told = sections.summary(errors)
        parts = ", ".join(f"{name[:-3]} {value:.1f}%" for name, value in told.items())
        yield f"\n{header[:-3]}: {parts}" + (
            ", the fitted row left out" if len(errors) < len(found) else ""
        )


def _write_picture() -> None:
    times, memory = [], []
    if found := _pages.latest(LINES, "opt_350"):
        times.append(_cloud("OPT-350M", found, "measured, s", "closed form, s"))
        memory.append(_cloud("OPT-350M", found, "measured, GB", "memory, GB"))
    if found := _pages.latest(LINES, "table_5"):
        times.append(_cloud("Megatron-LM", found, "measured, s", "closed form, s"))
    panels = {"iteration, s": times, "peak memory, GB": memory}
    draw({k: clouds for k, clouds in panels.items() if clouds}, RESULTS / PICTURE)


def _cloud(name: str, found: list[Row], theirs: str, ours: str) -> Cloud:
    return Cloud(name, [row[theirs] for row in found], [row[ours] for row in found])


def measured_runs(folder: Path) -> Iterator[Row]:
    """Yield runs that others measured, beside what the cost model predicts."""
    where = {
        **{"OPT-350M": "opt_350", "Megatron-LM": "table_5"},
        **{"HexiScale": "hexiscale_table_3"},
    }
    for row in rows(folder):
        why = SECTIONS[where[row["runs"]]][1]
        what, _, unit = row["what"].partition(", ")
        text = f"{row['run']}: {what}"
        yield _figures.figure(row["runs"], text, row["ours"], row["theirs"], unit, why)


def main(words: list[str] | None = None) -> list[Row]:
    """Run the sections that were asked for, write the page; the figures of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sections", nargs="*", choices=[[], *SECTIONS], metavar="NAME")
    parser.add_argument("--data", type=Path, help="folder of measurements")
    asked = parser.parse_args(words)
    folder = _folder(asked.data)
    for name in asked.sections or SECTIONS:
        if name in NEED_MEASUREMENTS and not _has_measurements(folder):
            print(f"{name}: left out, {folder / opt.FILE} is not there; give --data")
            continue
        _pages.run(LINES, name, SECTIONS[name][0], folder, "matplotlib")
    _pages.write(PAGE, LINES, HEAD, SECTIONS, _means)
    _write_picture()
    return list(measured_runs(folder))


if __name__ == "__main__":
    main()
