"""Words of results/papers.md that have figures, made from the rows that these are from.

    python benchmarks/_headlines.py           the words that the page has otherwise
    python benchmarks/_headlines.py --again   those of no page, too: planned anew

The page is written by hand; a figure in it is that of the latest row of a page, or of
the best plan and bound that are known of an instance. `WORDS` has the words that follow
from these today, `ANEW` those of plans that no page has, which take a minute to make.
`tests/bench/test_result_pages.py` looks for each of them.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

import _frenzy_page
import _metis_page
import _pages
import hexiscale
import metis
from _measuring import RESULTS, kept

import hetopt
from hetopt.api import rented

Row = dict[str, Any]
PAGE = "papers.md"
LIBRARY = Path(__file__).parent.parent / "instances"
PUBLISHED, PRUNED = "espresso, published depth", "+ time and capacity"
OWN_QUEUES = ("simulator-30", "simulator-60", "testbed-30", "testbed-60")
TYPED, THROUGHPUT = (
    "frenzy, with its type, throughput first",
    "frenzy, throughput first",
)


def line(values: Iterable[float], places: int = 2) -> str:
    """Return figures with commas between them."""
    return ", ".join(f"{value:.{places}f}" for value in values)


def words(values: Iterable[float], places: int = 2) -> str:
    """Return figures as a sentence has them: 1, 2 and 3."""
    *first, last = (f"{value:.{places}f}" for value in values)
    return f"{', '.join(first)} and {last}" if first else last


def span(values: Iterable[float], places: int = 0) -> str:
    """Return the least and the largest figure."""
    found = list(values)
    return f"{min(found):.{places}f} to {max(found):.{places}f}"


@cache
def known(name: str) -> Row:
    """Return what is best known of an instance of the library."""
    text = (LIBRARY / f"{name}.best.json").read_text(encoding="utf-8")
    found: Row = json.loads(text)
    return found


def best_s(name: str) -> float:
    """Return the seconds of the best plan that is known of an instance."""
    return float(known(name)["objective"]) / 1e6


# --- the papers ------------------------------------------------------------------


def espresso() -> Iterator[str]:
    """Yield the words on Espresso."""

    def rows(section: str) -> list[Row]:
        return _pages.latest("espresso.jsonl", section)

    def column(section: str, header: str) -> list[float]:
        return [row[header] for row in rows(section)]

    over = [
        max(column("savings", f"over {name}, %"))
        for name in ("whale_plus", "sia_plus", "sia_plus, fastest")
    ]
    yield (
        f"up to {over[0]:.1f}% over Whale+, {over[1]:.1f}% over the cheapest Sia+, "
        f"{over[2]:.1f}% over the fastest Sia+, nothing over HPH+"
    )
    (good, whole, worst), (few, most, deepest) = (
        _within(rows("gaps"), name) for name in ("espresso, any depth", PUBLISHED)
    )
    yield (
        f"{good} of {whole} gaps (any depth, worst {worst:.1f}%) and {few} of {most} "
        f"(published depth, worst {deepest:.1f}%); up to "
        f"{_within(rows('gaps'), 'espresso')[2]:.1f}% where the planner looks at 8"
    )
    saved = [row["saved, %"] for row in rows("pruning") if row["pruning"] == PRUNED]
    planning = column("savings", "slowest planning, CPU s")
    yield f"{mean(saved):.1f}% (mean of the jobs), {span(planning, 1)} s"
    _, dearest, equal, _ = rows("figure_2_plans")
    cost, times = "times the cost of Min", "times the time of Min"
    yield (
        f"{dearest[cost]:.2f} times cheaper, and the dearest is the faster by "
        f"{100 * (1 - dearest[times]):.0f}%; {equal[cost]:.2f} times"
    )
    yield f"ours take {span(column('figure_2_plans', 'iteration, s'))} s by Eq. 8"
    longest = max(column("placements", "shorter than Whale+, at most, %"))
    medians = column("placements", "shorter than Whale+, median, %")
    yield (
        f"on the GPUs of {sum(column('placements', 'allocations')):.0f} plans of the "
        f"fronts up to {longest:.1f}% shorter than by Whale+, {span(medians)}% in the "
        "median of a job; at most "
        f"{max(column('placements', 'shorter than HPH+, at most, %')):.1f}% shorter"
    )
    longer = column("placements", "longer than HPH+'s layers in its order, at most, %")
    yield f"0 to {max(longer):.1f}% longer than the best layers of its own sequence"
    match = Counter(row["match"] for row in rows("table_4"))
    yield (
        f"{match['same']} of {match.total()} rows the same, "
        f"{match['1 layers elsewhere']} with one layer elsewhere, "
        f"{match['2 layers elsewhere']} with two, {match['another order']} in another"
    )
    yield f"{span(column('table_4', 'settings tried'))} settings a job were tried"
    orders = {row["sequence"]: row for row in rows("figure_3") if row["stages"] == 4}
    every = [row for row in rows("figure_3") if row["sequence"].startswith("all")]
    ends = [float(end) for row in every for end in row["saved, %"].split(" to ")]
    whale = next(row for row in rows("figure_4") if row["plan"].startswith("Whale"))
    longer = [
        row["longer than the best of all, %"]
        for row in rows("figure_4")
        if row["plan"] == whale["plan"] and row["stage"] == "judged"
    ]
    yield (
        f"over Whale's BADC it saves {orders['DCBA'][SAVED_OVER]:.1f}% (paper 31.9%), "
        f"partitions of one order {min(ends):.0f} to {max(ends):.1f}% (6.9 to 15.2%), "
        f"and Whale's own plan takes {longer[0]:.1f}% longer"
    )


SAVED_OVER = "saved over Whale's BADC, %"


def _within(rows: list[Row], planner: str) -> tuple[int, int, float]:
    """Return how many gaps of a planner are within 4.5 %, all, and the worst."""
    mine = [row for row in rows if row["planner"] == planner]
    counts = [row["within 4.5 %"].split(" of ") for row in mine]
    good, whole = (sum(int(pair[i]) for pair in counts) for i in (0, 1))
    return good, whole, max(row["worst, %"] for row in mine)


def frenzy() -> Iterator[str]:
    """Yield the words on Frenzy."""
    found = _frenzy_page.latest("queues", "queue", "policy")
    queues = list(dict.fromkeys(queue for queue, _ in found))

    def less(mine: str, other: str, over: Iterable[str] = queues) -> list[float]:
        """Return by how many percent a policy's completion is below another's."""
        return [
            100 * (1 - found[q, mine]["completion_s"] / found[q, other]["completion_s"])
            for q in over
        ]

    def ahead(mine: str, other: str) -> int:
        return sum(value > 0 for value in less(mine, other))

    def behind(ahead: list[float]) -> str:
        """Return from where to where percents behind reach; some may be ahead."""
        if max(ahead) <= 0:
            return f"{span((-x for x in ahead), 1)}% behind"
        return f"{max(ahead):.1f}% ahead of to {-min(ahead):.1f}% behind"

    def hours(policy: str) -> list[float]:
        return [found[queue, policy]["completion_s"] / 3600 for queue in OWN_QUEUES]

    printed = less("frenzy", "opportunistic")
    yield (
        f"less on {ahead('frenzy', 'opportunistic')} of {len(queues)} rows, by up to "
        f"{max(printed):.0f}%"
    )
    yield (
        f"by throughput {span(less(TYPED, 'opportunistic', OWN_QUEUES))}% less on its "
        "four queues"
    )
    as_asked = "sia, GPUs as asked"
    yield (
        f"{span(less(TYPED, as_asked, OWN_QUEUES))}% less than Sia with GPU counts as "
        "users ask on its four queues, with a type and ranked by throughput (ahead on "
        f"{ahead(TYPED, as_asked)} of {len(queues)} rows); "
        f"{behind(less(TYPED, 'sia', OWN_QUEUES))} Sia that "
        f"chooses the counts (ahead on {ahead(TYPED, 'sia')} of {len(queues)}). Ranked "
        f"so, but as printed ahead on {ahead(THROUGHPUT, as_asked)} and "
        f"{ahead(THROUGHPUT, 'sia')} of {len(queues)}"
    )
    decision = "decision_median_ms"
    quicker = [found[q, "sia"][decision] / found[q, "frenzy"][decision] for q in queues]
    yield f"{min(quicker):,.0f} to {max(quicker):,.0f} times"
    yield (
        f"Frenzy takes {words(hours(TYPED))} h on average on its four queues (Sia "
        f"{line(hours('sia'))}; opportunistic {line(hours('opportunistic'))}), as "
        f"printed {words(hours(THROUGHPUT))} h"
    )
    rate = "samples_per_second_of_a_job"
    more = [
        100 * (found[q, THROUGHPUT][rate] / found[q, "opportunistic"][rate] - 1)
        for q in queues
    ]
    yield f"samples a second {span(more)}% more, ranked by throughput"
    memory = [row for row in kept(_frenzy_page.LINES) if row["part"] == "memory"]
    latest = [row for row in memory if row["began"] == memory[-1]["began"]]
    yield f"MARP beside {len(latest)} measured peaks of others"
    accuracy = defaultdict(list)
    for row in latest:
        error = abs(row["marp_gib"] / row["measured_gib"] - 1)
        accuracy[row["set"]].append(100 * (1 - error))
    yield f"{words(accuracy['bigscience-v100'], 0)}% on the one run"
    yield f"{span(accuracy['sailor-gh200, fp32'])}% in single precision"


def autohet() -> Iterator[str]:
    """Yield the words on AutoHet."""
    averages = _pages.latest("autohet.jsonl", "averages")
    alone = averages[1:]  # the paper has no Whale on BERT

    def column(header: str, rows: list[Row]) -> list[float]:
        return [row[header] for row in rows]

    yield (
        f"{line(column('over megatron', averages))} with K = B / (b D); "
        f"{line(column('over megatron, K = 16', averages))} with K = 16"
    )
    yield (
        f"{line(column('over whale, equal layers', alone))} over Whale with equal "
        f"layers (K = 16: {line(column('over whale, equal layers, K = 16', alone))}); "
        f"{line(column('over whale', alone))} over Whale as published"
    )
    speed_ups = _pages.latest("autohet.jsonl", "speed_ups")
    megatron = {row["setting"]: row["megatron, s"] for row in speed_ups}
    ratios = [
        megatron[name] / best_s(f"autohet/{name}")
        for name in megatron
        if name.endswith("-h800-llama-6.7b")
    ]
    (h20,) = (
        megatron[name] / best_s(f"autohet/{name}")
        for name in megatron
        if name.endswith("-h20-llama-6.7b")
    )
    yield (
        f"on average at most {mean(ratios):.2f} (all three settings on A100 + H800 are "
        f"solved to the optimum since: {line(sorted(ratios), 3)}) and {h20:.2f}"
    )
    eq_1 = _pages.latest("autohet.jsonl", "eq_1")
    part = max(float(row[T_SYNC].rstrip("%")) for row in eq_1)
    yield (
        f"T_sync is at most {part:.1f}% of an iteration, and the averages over "
        f"Megatron-LM are {eq_1[0]['as printed']:.2f} for "
        f"{eq_1[0]['over Megatron-LM, ring']:.2f} on BERT-Large"
    )
    grouping = _pages.latest("autohet.jsonl", "grouping")
    yield f"{span(column('method, s', grouping), 3)} s by patterns"
    literal = {row["devices"]: row.get("statement, s") for row in grouping}
    done = max(n for n, seconds in literal.items() if isinstance(seconds, float))
    first = min(n for n, seconds in literal.items() if isinstance(seconds, str))
    two = [row for row in kept("statements.jsonl") if row["ladder"] == "2 types"][-1]
    proved = two["proved"]
    yield (
        f"its own statement on SCIP proves {done}, not {first}, in "
        f"{literal[first].rpartition(' ')[2]} s of three types, and "
        f"{proved['case'].partition(' ')[0]} in {proved['seconds']:.1f} s of two"
    )
    recovered: dict[str, list[Row]] = defaultdict(list)
    for row in _latest_recovery():
        recovered[row["scenario"]].append(row)
    means = [mean(row["speed_up"] for row in recovered[name]) for name in "ABC"]
    again = max(
        row["exact_speed_up"] / row["speed_up"]
        for rows in recovered.values()
        for row in rows
    )
    yield (
        f"{line(means)} (`recovery.md`) | whole layers, and the 20B model's memory; "
        "what new nodes wait for in scenario C is open. Exact sources are up to "
        f"{again:.1f} times as fast again"
    )


T_SYNC = "T_sync of AutoHet's iteration, ring, at most"


def _latest_recovery() -> list[Row]:
    """Return the last row of each scenario and model, as the paper has them."""
    found: dict[tuple[str, str], Row] = {}
    for row in kept("recovery.jsonl"):
        if row.get("variant") == "as above":
            found[row["scenario"], row["model"]] = row
    return list(found.values())


def on_metis() -> Iterator[str]:
    """Yield the words on Metis."""
    rows = metis._rows()
    figures = [row for row in rows if row["section"] == "figures"]
    groups = {name: found for name, found, _ in _metis_page.groups(figures)}
    fourth, fifth = groups["figure 4, all"], groups["figure 5, non-uniform"]
    over = [_metis_page.over(fourth, names) for names in metis.OVER.values()][:2]
    every = [value for found in over for value in found]
    yield (
        f"{span(every, 2)} times; {mean(over[0]):.2f} and {mean(over[1]):.2f} times on "
        "average"
    )
    both = [mean(_metis_page.over(fifth, names)) for names in metis.OVER.values()][:2]
    yield f"{both[0]:.1f} times over both"
    searched = [row for row in rows if row["section"] == "seconds"]
    above = [
        100 * (row["metis"]["us"] / row[metis.ORACLE]["us"] - 1) for row in searched
    ]
    yield f"{line(above, 1)}% above the proved optimum of one pipeline"
    oracle = [row for row in rows if row["section"] == "oracle"]
    few, many = (
        [row["search"] for row in oracle if (row["gpus"] < 16) == small]
        for small in (True, False)
    )
    yield (
        f"{few[0]:.0f} and {few[1]:.1f} times at 4 and 8 GPUs, and {span(many, 2)} "
        "times from 16 GPUs on"
    )
    counted = [row["layers to profile"] for row in oracle]
    yield f"{span(counted)} times as many for the oracle"


def on_hexiscale() -> Iterator[str]:
    """Yield the words on HexiScale."""

    def rows(section: str) -> list[Row]:
        return _pages.latest(hexiscale.LINES, section)

    reached = {row["setting"]: row for row in rows("settings")}
    points, times = "points below equal GPUs", "times galvatron_like"
    headlines = {row["setting"]: row for row in rows("headlines")}
    settings = [f"setting-{n}-llama2-{size}" for size in ("7b", "13b") for n in (1, 2)]
    settings.append("setting-3-llama-30b")
    by_setting = [headlines[name] for name in headlines if name.startswith("setting")]
    yield (
        f"{words((row[points] for row in by_setting), 1)} points in its calibrated "
        f"units, mean {headlines['mean'][points]:.1f}"
    )
    yield (
        f"{words(row[times] for row in by_setting)} times `galvatron_like`, mean "
        f"{headlines['mean'][times]:.2f}"
    )
    own = "HFU calibrated, %"
    yield (
        f"{words((reached[n][own] for n in (settings[0], settings[-1])), 1)}% in its "
        "units"
    )
    mine = {name: reached[name]["hexiscale, s"] for name in settings}
    theirs = {name: reached[name]["released planner's plan, s"] for name in settings}
    faster = [theirs[name] / mine[name] for name in settings]
    yield (
        f"{span(faster, 1)} times as fast as the released planner's "
        f"({mine[settings[0]]:.1f} s against {theirs[settings[0]]:.1f} s)"
    )
    loss = [
        100 * (mine[name] * 1e6 / known(f"hexiscale/{name}")["bound"] - 1)
        for name in ("setting-1-llama2-7b", "setting-1-llama2-13b")
    ]
    yield f"{loss[0]:.1f}% (7B) and {loss[1]:.1f}% (13B) above a proved bound"
    above = [100 * (mine[name] / best_s(f"hexiscale/{name}") - 1) for name in settings]
    yield f"planner at most {max(above):.0f}% above the best plan known on the five"
    milp = [row for row in rows("joint_milp") if not row["hint"]]
    literal = [
        run
        for run in kept("hexiscale_milp.jsonl")
        if (run["instance"], run["statement"]) == ("small-4", "hexiscale_literal")
        and run["hint"] is False
        and run["status"] == "optimal"
    ]
    yield (
        f"proves 4 GPUs by itself in {literal[-1]['cpu_s']:.0f} CPU s, and nothing on 6"
        if literal
        else "proves nothing by itself in 60 s, not even 4 GPUs"
    )
    small = [
        row["GPUs"]
        for row in milp
        if row["statement"] == "hexiscale_milp"
        and row["instance"].startswith("small")
        and row["status"] == "optimal"
    ]
    yield f"strengthened it proves {words(small, 0)} GPUs without a hint"
    (first,) = (
        row
        for row in milp
        if row["instance"] == "setting-1-llama2-7b"
        and row["statement"] == "hexiscale_milp"
    )
    yield (
        f"no plan takes less than {first['proved bound, s']:.1f} s (the best known "
        f"{best_s('hexiscale/setting-1-llama2-7b'):.1f} s)"
    )
    large = rows("large")
    galvatron, over = "galvatron_like / hexiscale", "metis / hexiscale"
    yield (
        f"{large[0][galvatron]:.1f} (setting 3), {large[1][galvatron]:.1f} and "
        f"{large[2][galvatron]:.1f} times (240 GPUs) `galvatron_like`; "
        f"{words(row[over] for row in large)} times `metis`"
    )
    printed = rows("metis_plan")[0]
    yield f"(Table 5: {printed['iteration, s']:.1f} s here)"


WORDS: dict[str, Callable[[], Iterator[str]]] = {
    "Espresso": espresso,
    "Frenzy": frenzy,
    "AutoHet": autohet,
    "Metis": on_metis,
    "HexiScale": on_hexiscale,
}


# --- plans that no page has ------------------------------------------------------


def _planned_s(name: str, planner: str) -> tuple[float, int, int]:
    """Return seconds of a planner's plan, its GPUs, and those of the cluster."""
    result = hetopt.plan(f"hexiscale/{name}", planner, known=False, limits=PLANNING_S)
    assert result.objective is not None
    used = sum(len(replica.gpus) for replica in result.plan.replicas())
    seconds = float(result.objective) / 1e6
    return seconds, used, result.data.planned_cluster.gpu_count


def on_equal_gpus() -> Iterator[str]:
    """Yield the words on Metis's section 5.2."""
    names = [
        f"homogeneous-{network}-{model}"
        for network, model in (
            ("rdma", "llama2-7b"),
            ("ethernet", "llama2-13b"),
            ("rdma", "llama-30b"),
        )
    ]
    taken = {
        planner: [_planned_s(name, planner)[0] for name in names]
        for planner in ("metis", "amp", "alpa_like")
    }

    told = [
        "{:.4g}, {:.4g} and {:.4g}".format(*taken[planner])
        for planner in ("metis", "amp", "alpa_like")
    ]
    yield f"{told[0]} s, AMP {told[1]}, `alpa_like` {told[2]}"
    slower = [
        100 * (seconds / best_s(f"hexiscale/{name}") - 1)
        for seconds, name in zip(taken["metis"], names, strict=True)
    ]
    yield f"several pipelines, which on these clusters are {span(slower)}% faster"


def on_sailor() -> Iterator[str]:
    """Yield the words on Sailor's planner."""
    names = ("setting-1-llama2-7b", "setting-2-llama2-13b", "setting-3-llama-30b")
    found = {
        planner: [_planned_s(name, planner) for name in names]
        for planner in ("sailor", "megatron", "hexiscale")
    }
    seconds = {name: [row[0] for row in rows] for name, rows in found.items()}
    used = [f"{row[1]} of {row[2]}" for row in found["sailor"]]
    yield (
        f"{words(seconds['sailor'], 1)} s with {', '.join(used[:2])} and {used[2]} GPUs"
    )
    yield (
        f"(`megatron`: {line(seconds['megatron'], 1)} s; `hexiscale`: "
        f"{line(seconds['hexiscale'], 1)} s)"
    )


def on_rented() -> Iterator[str]:
    """Yield the words on a plan of offers as a training plan."""
    result = hetopt.provision("espresso/llama-7b", limits=PLANNING_S)
    priced = result.evaluation.parts["iteration_us"] / 1e6
    instance = rented.offering(result)
    made, plan = rented.training(instance, result.plan)
    judged = hetopt.check(plan, made)
    yield (
        f"{priced:.1f} s an iteration becomes {float(judged.objective) / 1e6:.1f} s on "
        "LLaMA-7B at 2.5 Gb/s"
    )


PLANNING_S = 60.0  # all end by themselves before
ANEW: dict[str, Callable[[], Iterator[str]]] = {
    "Espresso": on_rented,
    "Metis": on_equal_gpus,
    "Sailor": on_sailor,
}


def missing(found: Iterable[str]) -> list[str]:
    """Return the words that the page does not have."""
    page = " ".join((RESULTS / PAGE).read_text(encoding="utf-8").split())
    return [one for one in found if one not in page]


if __name__ == "__main__":
    made = [*WORDS.items(), *(ANEW.items() if "--again" in sys.argv else ())]
    for name, yielded in made:
        for one in missing(yielded()):
            print(f"{name}: {one}")
