"""Pages of reports: each whole by itself, and for keyboards, readers, telephones."""

import re
from collections import Counter
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from disk import put
from html_page import Page

import hetopt
from hetopt import api
from hetopt.api import replaying
from hetopt.explaining.simulator import simulate
from hetopt.files import load_plan
from hetopt.report import (
    bench,
    explanation,
    front,
    gaps,
    recovery,
    replay,
    results,
    schedule,
    targets,
    timeline,
    writers,
)

LIBRARY = Path(hetopt.__file__).parent.parent / "instances" / "hexiscale"
PLAN = LIBRARY / "case-study-hexiscale.plan.json"
MOST_BYTES = 500_000
REGION = {"role": "region", "tabindex": "0"}


def recovered() -> Any:
    """What is done after a tiny cluster's second node is gone."""
    plan = hetopt.plan("tiny/two-nodes", "megatron", limits=1)
    return hetopt.recover(
        plan, "tiny/two-nodes", ["node1"], planning_s=0.1, horizon_s=100, limits=5
    )


def replayed(folder: Path) -> Any:
    trace = put(folder / "spot.csv", "time_s,gpus\n0,4\n600,2\n1200,4\n")
    plan = hetopt.plan("tiny/two-nodes", "megatron", limits=1)
    methods = ("varuna", "autohet_recovery")
    return replaying.replay(plan, "tiny/two-nodes", trace, methods=methods)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A page of each kind, of instances that take no time."""
    folder = tmp_path_factory.mktemp("trace")
    _, data, plan = load_plan(PLAN)
    suite = {"suite": "s", "tasks": 0, "machine": {}, "versions": {}, "threads": [1]}
    compared = hetopt.compare("tiny/two-nodes", planners=["megatron"], limits=1)
    outcomes = api.schedule("frenzy/testbed-30", ["frenzy", "opportunistic"])
    planned = hetopt.plan("tiny/two-nodes", "megatron", limits=1)
    generating = hetopt.plan("post_training/tiny", limits=1)
    return {
        "plan": writers.page(results.sheet(planned)),
        "post_training": writers.page(results.sheet(generating)),
        "gaps": writers.page(gaps.sheet(compared)),
        "explain": writers.page(explanation.sheet(hetopt.explain(PLAN, limits=0))),
        "simulate": writers.page(timeline.sheet(simulate(data, plan))),
        "schedule": writers.page(schedule.sheet(outcomes)),
        "recover": writers.page(recovery.sheet(recovered())),
        "replay": writers.page(replay.sheet(replayed(folder))),
        "bench": writers.page(bench.sheet(bench.report(suite, []))),
        "frontier": writers.page(front.sheet(api.frontier("tiny/offers"))),
        "targets": writers.page(
            targets.sheet(hetopt.compare_targets("tiny/two-nodes", limits=0.05))
        ),
    }


KINDS = (
    *("gaps", "explain", "simulate", "schedule", "recover", "replay", "bench"),
    *("frontier", "targets", "plan", "post_training"),
)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_is_whole_and_light(pages: dict[str, str], kind: str) -> None:
    html = pages[kind]
    assert not re.search(r"https?:|url\((?!#)|@import|fetch\(|XMLHttp", html)
    found = Page(html)
    assert not {"link", "iframe", "img", "object"} & {tag for tag, _ in found.tags}
    assert len(html.encode()) < MOST_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_counts_and_measures_as_people_do(
    pages: dict[str, str], kind: str
) -> None:
    """One thing is no plural, and no time has more zeros than digits."""
    things = "samples|stages|pipelines|GPUs|nodes|plans|jobs|solves|machines|changes"
    text = re.sub(r"<(style|script).*?</\1>|<[^>]*>", "|", pages[kind], flags=re.S)
    assert not re.findall(rf"(?<![\d.,–-])1 (?:{things})\b", text)
    assert not re.findall(r"(?<![\d.,])(?:0\.0+\d* m?s|0 ms)\b", text)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_says_to_readers_what_it_has(pages: dict[str, str], kind: str) -> None:
    found = Page(pages[kind])
    for landmark in ("header", "main", "footer", "h1"):
        assert len(found.of(landmark)) == 1
    assert len(found.of("table")) == len(found.of("caption"))
    heads = found.of("th")
    assert all(head["scope"] == "col" for head in heads)
    # Whatever scrolls is reached by a keyboard, and has a name.
    for one in found.of("div", "wide") + found.of("div", "picture wide"):
        assert REGION.items() <= one.items()
        assert one["aria-label"]
    drawn = found.of("svg")
    assert all(one["role"] == "img" and one["aria-label"] for one in drawn)
    assert len(found.of("title")) == 1 + len(drawn)


def test_names_within_pictures_are_their_own(pages: dict[str, str]) -> None:
    """What is not shown lends no pattern, so none is used of another picture."""
    for html in pages.values():
        for picture in re.findall(r"<svg.*?</svg>", html, re.S):
            there = set(re.findall(r' id="([^"]+)"', picture))
            used = re.findall(r'(?:url\(#|href="#)([^")]+)', picture)
            assert set(used) <= there


@pytest.mark.parametrize("kind", ["gaps", "explain", "plan", "post_training"])
def test_a_page_begins_with_how_fast_and_how_far_from_optimal(
    pages: dict[str, str], kind: str
) -> None:
    (said,) = re.findall(r"</h1>\s*<p>(.*?)</p>", pages[kind], re.S)
    assert re.search(r"takes [\d.]+ m?s per (iteration|step)", said)
    assert re.search(r"no plan (takes less than [\d.]+ m?s|is faster) ?\(proved", said)


def test_the_page_of_post_training_says_which_gpus_do_what() -> None:
    found = hetopt.plan("post_training/tiny", limits=1)
    node = found.data.instance.planned_cluster.node
    stages = [stage for one in found.plan.trains.pipelines for stage in one.stages]
    said = results.sheet(found).answer
    trains, generates = said.partition(" in ")[0].split(", generate ")
    for part, gpus in (
        (
            trains,
            [x for one in stages for replica in one.replicas for x in replica.gpus],
        ),
        (generates, [x for engine in found.plan.engines for x in engine.gpus]),
    ):
        told = {card: int(n) for n, card in re.findall(r"(\d+) × ([^ ,:]+)", part)}
        assert told == Counter(node[gpu.rpartition(":")[0]].gpu for gpu in gpus)


# --- in a browser ----------------------------------------------------------------

#: What is wider than its box, but for what scrolls; labels of pictures that overlap.
WRONG = """() => {
  const wide = [...document.querySelectorAll("body *")].filter((one) =>
    one.clientWidth && one.scrollWidth > one.clientWidth + 1
    && !one.closest("svg, .unseen") && !one.matches(".wide"));
  const words = [...document.querySelectorAll("svg")].flatMap((drawn) => {
    const boxes = [...drawn.querySelectorAll("text")].filter((one) => one.textContent)
      .map((one) => [one, one.getBoundingClientRect()]);
    const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
      && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
    return boxes.filter(([, a], i) => boxes.slice(i + 1).some(([, b]) => meet(a, b)))
      .map(([one]) => one);
  });
  return [...wide, ...words].map((one) => one.tagName + ": " + one.textContent);
}"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_page_fits_every_screen(
    pages: dict[str, str], chromium: Any, tmp_path: Path, kind: str
) -> None:
    file = put(tmp_path / "page.html", pages[kind])
    for width, scheme in product((390, 800, 1200), ("light", "dark")):
        size = {"width": width, "height": 900}
        page = chromium.new_context(viewport=size, color_scheme=scheme).new_page()
        asked: list[str] = []
        wrong: list[Any] = []
        page.on("request", lambda one, asked=asked: asked.append(one.url))
        page.on("pageerror", lambda one, wrong=wrong: wrong.append(one))
        page.goto(file.as_uri())
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(WRONG) == []
        assert asked == [file.as_uri()]
        assert wrong == []
        page.context.close()
