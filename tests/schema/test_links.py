"""Links given pair by pair are those that the file says."""

import pickle
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from hypothesis import given
from inputs import examples, seeds

from hetopt.schema import Cluster, Inter, Link, link_of


def random_cluster(random: Random) -> dict[str, Any]:
    """Nodes with links for all, by pair, or both; some pairs are listed twice."""
    names = [f"n{i}" for i in range(random.randint(1, 9))]
    rates = [random.choice([0.3, 1.7, 12.5, 25.0]) for _ in range(4)]
    everyone = [(a, b) for i, a in enumerate(names) for b in names[:i]]
    usual = random.choice([None, 0.7])
    listed = (
        everyone if usual is None else [x for x in everyone if random.random() < 0.4]
    )
    listed += random.choices(listed, k=3) if listed else []
    rows = []
    for pair in listed:
        ends = random.sample(pair, 2)
        row = [*ends, random.choice(rates), random.choice([0, 2.5])]
        as_object = dict(
            zip(("first", "second", "gbytes_per_s", "latency_us"), row, strict=True)
        )
        rows.append(random.choice([row, row[:3], as_object]))
    return {
        "gpus": {"A": {"peak_tflops": 1, "memory_gib": 1}},
        "nodes": [
            {"name": n, "gpu": "A", "count": 2, "intra_gbytes_per_s": 5} for n in names
        ],
        "inter": {"gbytes_per_s": usual, "latency_us": 1, "pairs": rows},
    }


def last_rows(tree: dict[str, Any]) -> dict[frozenset[str], tuple[float, float]]:
    """What the file says of each pair, by its last row."""
    found = {}
    for row in tree["inter"]["pairs"]:
        values = list(row.values()) if isinstance(row, dict) else row
        rate, latency = (*values[2:], 0)[:2]
        found[frozenset(values[:2])] = (rate, latency)
    return found


def ordered_pairs(cluster: Cluster) -> Iterator[tuple[int, int]]:
    numbers = range(len(cluster.nodes))
    return ((i, j) for i in numbers for j in numbers if i != j)


@examples(40)
@given(seed=seeds())
def test_every_link_is_the_one_that_the_file_says(seed: int) -> None:
    tree = random_cluster(Random(f"links {seed}"))
    cluster = Cluster.model_validate(tree, strict=False)
    said, inter = last_rows(tree), tree["inter"]
    for i, j in ordered_pairs(cluster):
        one, other = cluster.nodes[i].name, cluster.nodes[j].name
        usual = (inter["gbytes_per_s"], inter["latency_us"])
        expected = link_of(*map(float, said.get(frozenset((one, other)), usual)))
        assert cluster.link(one, other) == expected
        assert cluster.links.exactly(int(cluster.links.row(i)[j])) == expected
        assert cluster.links.between(i, j) in cluster.links.present


def test_rows_and_objects_are_links_with_one_digest() -> None:
    rows = [["a", "b", 3, 1], ["a", "c", 0.5], {"first": "b", "second": "c"}]
    rows[2] |= {"gbytes_per_s": 3.0}  # type: ignore[operator]
    inter = Inter.model_validate({"pairs": rows})
    links = (
        Link(first="a", second="b", gbytes_per_s=3, latency_us=1),
        Link(first="a", second="c", gbytes_per_s=0.5),
        Link(first="b", second="c", gbytes_per_s=3),
    )
    assert inter.pairs == links
    assert inter.digest == Inter(pairs=links).digest
    assert Inter.model_validate_json(inter.model_dump_json()) == inter


def test_a_cluster_whose_links_were_asked_for_can_be_sent_to_another_process() -> None:
    cluster = Cluster.model_validate(random_cluster(Random("links 3")), strict=False)
    one, other = (node.name for node in cluster.nodes[:2])
    assert cluster.link(one, other)
    assert pickle.loads(pickle.dumps(cluster)).link(one, other) == cluster.link(
        one, other
    )


@examples(30)
@given(seed=seeds())
def test_islands_are_the_pairs_that_they_stand_for(seed: int) -> None:
    random = Random(f"islands {seed}")
    tree = random_cluster(random)
    names = [node["name"] for node in tree["nodes"]]
    tree["inter"] |= {"gbytes_per_s": 0.7}
    islands, said = [], {}
    for _ in range(random.randint(1, 3)):
        several = random.sample(names, random.randint(min(2, len(names)), len(names)))
        words = random.choice([several, ["n*"]])
        members = names if words == ["n*"] else several
        rate, latency = random.choice([25.0, 50.0]), random.choice([0, 2])
        islands.append({"nodes": words, "gbytes_per_s": rate, "latency_us": latency})
        for one in members:
            said |= {frozenset((one, o)): (rate, latency) for o in members if o != one}
    said |= last_rows(tree)
    if len(names) == 1:
        return
    cluster = Cluster.model_validate(
        {**tree, "inter": {**tree["inter"], "islands": islands}}, strict=False
    )
    for i, j in ordered_pairs(cluster):
        ends = frozenset((names[i], names[j]))
        expected = link_of(*map(float, said.get(ends, (0.7, 1))))
        assert cluster.link(names[i], names[j]) == expected
        assert cluster.links.exactly(cluster.links.between(i, j)) == expected
    rows = [[*sorted(ends), *link] for ends, link in said.items()]
    written = Cluster.model_validate(
        {**tree, "inter": {**tree["inter"], "pairs": rows}}, strict=False
    )
    assert sorted(map(repr, written.inter.pairs)) == sorted(
        repr(link.model_copy(update=dict(zip(("first", "second"), ends, strict=True))))
        for link in cluster.inter.pairs
        for ends in [sorted((link.first, link.second))]
    )
    assert Cluster.model_validate_json(cluster.model_dump_json()) == cluster


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (["m*"], "expected the name of a node or a pattern"),
        (["n0"], "matches only node 'n0'"),
    ],
)
def test_an_island_joins_nodes_that_there_are(nodes: list[str], message: str) -> None:
    tree = random_cluster(Random("links 3"))
    tree["inter"]["islands"] = [{"nodes": nodes, "gbytes_per_s": "400Gb/s"}]
    with pytest.raises(ValueError, match=message):
        Cluster.model_validate(tree, strict=False)
