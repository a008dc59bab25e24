"""Figures of papers that are no column of a section of a script."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from statistics import fmean, median
from typing import Any

import _espresso_figures as espresso_figures
import espresso
import fidelity
import frenzy
import hexiscale_scale
import metis
import recovery
from _metis_page import OVER, groups, over

from hetopt import api
from hetopt.api import scheduling

Row = dict[str, Any]
HERE = "another machine, and Python; planning time of one run"


def _figure(
    paper: str, figure: str, ours: Any, theirs: Any, unit: str, reason: str
) -> Row:
    return {
        **{"paper": paper, "figure": figure, "ours": ours, "theirs": theirs},
        **{"unit": unit, "reason": reason},
    }


# --- HexiScale -------------------------------------------------------------------


def hexiscale_fig_9(limit_s: float) -> Iterator[Row]:
    """Fig. 9: planning time by number of GPUs, measured anew."""
    for gpus in (64, 192, 320):
        row = hexiscale_scale.measured(gpus, 1)
        why = "the paper's is an upper limit, on 12 cores; ours on one"
        figure = f"Fig. 9, planning at {gpus} GPUs"
        yield _figure("HexiScale", figure, row["seconds"], 120, "s", why)


# --- AutoHet ---------------------------------------------------------------------

RECOVERY = (
    "States in whole layers of the models; the paper's own split, what its new nodes "
    "wait for and the 20B model's memory are open: see results/recovery.md."
)


def autohet_recovery(limit_s: float) -> Iterator[Row]:
    """Fig. 10: recovery against Varuna's, mean of four models."""
    recovery.keep = _unkept
    for name, theirs in recovery.PAPER.items():
        rows = [
            row
            for row in recovery.scenarios([name], [*recovery.MODELS])
            if row["variant"] == "as above"
        ]
        ours = fmean(row["speed_up"] for row in rows)
        figure = f"Fig. 10, scenario {name}: over Varuna"
        yield _figure("AutoHet", figure, ours, theirs, "times", RECOVERY)


# --- measurements ----------------------------------------------------------------


def measured_runs(limit_s: float) -> Iterator[Row]:
    """Runs that others measured, beside what the cost model predicts."""
    sections = {
        **{"OPT-350M": "opt_350", "Megatron-LM": "table_5"},
        **{"HexiScale": "hexiscale_table_3"},
    }
    for row in fidelity.rows():
        _, why = fidelity.SECTIONS[sections[row["runs"]]]
        what, _, unit = row["what"].partition(", ")
        figure = f"{row['run']}: {what}"
        yield _figure(row["runs"], figure, row["ours"], row["theirs"], unit, why)


# --- Espresso --------------------------------------------------------------------


def espresso_job(job: str, limit_s: float) -> Iterator[Row]:
    """Fig. 8 and 9: savings, gaps and planning time on one job."""
    rows = list(espresso.sweep(job, limit_s))
    failed = sum(row["espresso"] is None for row in rows)
    none = f"No plan of espresso at {failed} of {len(rows)} deadlines."
    for name in espresso.BASELINES:
        saved = [-x for x in espresso.ratios(rows, "espresso", name)]
        figure, why = f"{job}: most saved over {name}", f"{espresso.REASON} {none}"
        yield _figure("Espresso", figure, max(saved), 49.8, "%", why)
    why = espresso.SECTIONS["gaps"][1]
    for planner, optimum in (
        ("espresso", "optimal"),
        ("espresso, any depth", "optimal"),
        ("espresso, published depth", "optimal, published depth"),
    ):
        gaps = espresso.ratios(rows, planner, optimum)
        figure = f"{job}: {planner}: worst gap to the optimum of the same space"
        if planner == "espresso":
            figure = f"{job}: {planner}: worst gap to the optimum of all depths"
        if gaps:
            yield _figure("Espresso", figure, max(gaps), 4.5, "%", why)
    slowest = max(row["espresso, CPU s"] for row in rows)
    paper_s = espresso.PAPER_S[job]
    yield _figure("Espresso", f"{job}: planning", slowest, paper_s, "s", HERE)


def espresso_pruning(limit_s: float) -> Iterator[Row]:
    """Fig. 10a: the share of the search that pruning saves."""
    rows = list(espresso.pruning(limit_s))
    steps = len(espresso.SWITCHES)
    ours = fmean(row["saved, %"] for row in rows[steps - 1 :: steps])
    why = "counted in nodes opened and plans placed; the paper does not say of what"
    figure = "pruning saves of the search, mean of four jobs"
    yield _figure("Espresso", figure, ours, 92.4, "%", why)


def espresso_table_4(limit_s: float) -> Iterator[Row]:
    """Table IV: orders of types and layers of the stages, one setting a job."""
    for row in espresso.table_4(limit_s):
        why = (
            f"{row['match']}; the setting nearest for all three placers, of "
            f"{row['settings tried']}: {row['the one setting']}"
        )
        figure = f"{row['job']}: {row['placer']}"
        yield _figure("Espresso", figure, row["ours"], row["paper"], "", why)


def espresso_figure_2(limit_s: float) -> Iterator[Row]:
    """Fig. 2: mixed plans against homogeneous ones."""
    for job in espresso.JOBS:
        cheaper, _ = espresso.ahead(api.tradeoffs(f"espresso/{job}"))
        why = "the paper's is of one job of its section II, with other offers"
        figure = f"{job}: mixed over homogeneous, at most"
        yield _figure("Espresso", figure, cheaper, 1.41, "times cheaper", why)


def espresso_placements(limit_s: float) -> Iterator[Row]:
    """Fig. 3 and 4: LLaMA-1.8B placed by Whale and at its best."""
    placements = espresso_figures.Placements(espresso_figures.llama_18b())
    found = placements.sequences(len(espresso_figures.LETTERS))
    best, inadequate = espresso_figures.BEST, espresso_figures.INADEQUATE
    optimal, whale = found[best][1], found[inadequate][0]
    why = espresso.SECTIONS["figure_3"][1]
    ours = espresso_figures.saved(optimal, whale)
    figure = f"Fig. 3: optimal {best} over Whale's {inadequate}, saved"
    yield _figure("Espresso", figure, ours, 31.9, "%", why)
    saved = [espresso_figures.saved(b, a) for a, b in found.values()]
    for word, value, theirs in (("least", min, 6.9), ("most", max, 15.2)):
        figure = f"Fig. 3: optimal partition over Whale's of one order, {word} saved"
        yield _figure("Espresso", figure, value(saved), theirs, "%", why)
    first = placements.by_memory(found)
    longer = 100 * (found[first][0].iteration_us / optimal.iteration_us - 1)
    why = espresso.SECTIONS["figure_4"][1]
    figure = f"Fig. 4: Whale's {first} over optimal {best}, longer"
    yield _figure("Espresso", figure, longer, 20.7, "%", why)


def _unkept(*found: Any) -> None:
    """The suite keeps its own rows: the script's file of results stays as it is."""


# --- Metis ------------------------------------------------------------------------

METIS = "speeds of GPUs are peaks here, and the models' tables ours: results/metis.md"


def metis_search(limit_s: float) -> Iterator[Row]:
    """Section 5.4: planning time and distance from the oracle, by number of GPUs."""
    known = {4: 0.0, 8: 0.0, 32: 5.0, 64: 5.0}
    for row in metis.seconds(limit_s):
        gpus, theirs = row["gpus"], row["paper_s"]
        figure, ours = f"{gpus} GPUs: search", row["metis"]["seconds"]
        yield _figure("Metis", figure, ours, theirs, "s", HERE)
        why = f"the oracle took {row['one_pipeline']['seconds']} s here; {METIS}"
        gap = 100 * (row["metis"]["us"] / row["one_pipeline"]["us"] - 1)
        figure = f"{gpus} GPUs: above the best plan known"
        yield _figure("Metis", figure, gap, known.get(gpus), "%", why)


def metis_ablation(limit_s: float) -> Iterator[Row]:
    """Table 4: search without layer balancing and DP-first search."""
    for row in metis.ablation(limit_s):
        figure = f"{row['gpus']} GPUs: search without balancing and DP-first search"
        why = "in CPU time; few plans are to be had, and ours are priced fast"
        yield _figure("Metis", figure, row["times"], row["paper"], "times", why)


def metis_speed_ups(limit_s: float) -> Iterator[Row]:
    """Figures 4 and 5: mean speed-ups over AMP and Alpa."""
    rows = list(metis.figures(limit_s, ("metis", "amp", "alpa_like")))
    for name, mine, stated in groups(rows):
        for (other, methods), theirs in zip(OVER.items(), stated, strict=True):
            if theirs is not None:
                figure, ours = f"{name}: over {other}", fmean(over(mine, methods))
                yield _figure("Metis", figure, ours, theirs, "times", METIS)


def metis_balancing(limit_s: float) -> Iterator[Row]:
    """Fig. 6: what plans without balancing lose."""
    for row in metis.balancing(limit_s):
        if row["paper"]:
            figure = f"Fig. 6, balanced {row['case']}: above both"
            ours, theirs = 100 * row["above"], 100 * row["paper"]
            yield _figure("Metis", figure, ours, theirs, "%", METIS)


# --- Frenzy ----------------------------------------------------------------------

FRENZY = (
    "Five seeds of ours; the paper's queues and its ranking of plans are not "
    "published, so both rankings are told. Sia moves and resizes "
    "running jobs, HAS never touches one: see results/frenzy.md."
)
BASELINES = (("opportunistic", -18.1), ("sia", -12.0))
MORE_SAMPLES = {30: 29.0, 60: 27.0}  # of a job a second, over opportunistic


def frenzy_completion(limit_s: float) -> Iterator[Row]:
    """Fig. 4: average completion under each ranking, and decision times."""
    for name, queues in frenzy.queues(None, None):
        found = {
            policy: [scheduling.schedule(q, [policy])[0].metrics for q in queues]
            for policy in ("frenzy", *(policy for policy, _ in BASELINES))
        }
        mean = {
            policy: fmean(m.average_completion_s for m in metrics if m is not None)
            for policy, metrics in found.items()
        }
        ranked = [frenzy.with_efficiency(q, "throughput") for q in queues]
        runs = (scheduling.schedule(q, ["frenzy"])[0].metrics for q in ranked)
        ranked_runs = [m for m in runs if m is not None]
        other = fmean(m.average_completion_s for m in ranked_runs)
        yield from _samples(name, "GPU", found["frenzy"], found["opportunistic"])
        yield from _samples(name, "throughput", ranked_runs, found["opportunistic"])
        for ranking, mine in (("GPU", mean["frenzy"]), ("throughput", other)):
            for policy, theirs in BASELINES:
                change = 100 * (mine / mean[policy] - 1)
                figure = f"{name}, by {ranking}: completion against {policy}"
                yield _figure("Frenzy", figure, change, theirs, "% change", FRENZY)
        times = {
            policy: median(m.decision_median_s or 0 for m in metrics if m is not None)
            for policy, metrics in found.items()
        }
        ratio = times["sia"] / times["frenzy"]
        figure = f"{name}: Sia's decision over HAS's"
        why = "Sia's program on CBC in one process here; the paper's solver is unknown"
        yield _figure("Frenzy", figure, ratio, 10.0, "times", why)


def _samples(
    name: str, ranking: str, ours: Sequence[Any], theirs: Sequence[Any]
) -> Iterator[Row]:
    """Fig. 4a: samples a second of a job, against opportunistic scheduling."""
    mine, other = (
        fmean(m.samples_per_second_of_a_job for m in metrics if m is not None)
        for metrics in (ours, theirs)
    )
    paper = MORE_SAMPLES[int(name.rpartition("-")[2])]
    figure = f"{name}, by {ranking}: samples a second of a job against opportunistic"
    change = 100 * (mine / other - 1)
    yield _figure("Frenzy", figure, change, paper, "% change", FRENZY)


BY_HAND: dict[str, Callable[[float], Iterator[Row]]] = {
    "hexiscale_fig_9": hexiscale_fig_9,
    "autohet_recovery": autohet_recovery,
    "measured_runs": measured_runs,
    **{
        f"espresso_{job.replace('-', '_').replace('.', '_')}": partial(
            espresso_job, job
        )
        for job in espresso.JOBS
    },
    "espresso_pruning": espresso_pruning,
    "espresso_table_4": espresso_table_4,
    "espresso_figure_2": espresso_figure_2,
    "espresso_placements": espresso_placements,
    "frenzy_completion": frenzy_completion,
    "metis_search": metis_search,
    "metis_ablation": metis_ablation,
    "metis_speed_ups": metis_speed_ups,
    "metis_balancing": metis_balancing,
}
