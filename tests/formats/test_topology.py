"""The link that counts within a host is that of the widest ring of NVLinks."""

from collections.abc import Sequence
from itertools import pairwise, permutations
from pathlib import Path
from random import Random

import networkx
import pytest

from hetopt.formats import nvidia_smi
from hetopt.formats.importing import topology
from hetopt.formats.importing.topology import Links, links, part, ring
from hetopt.schema import Cluster

CUBE = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity
GPU0\t X \tNV2\tNV1\tSYS\t0-19\t0
GPU1\tNV2\t X \tSYS\tNV1\t0-19\t0
GPU2\tNV1\tSYS\t X \tNV2\t20-39\t1
GPU3\tSYS\tNV1\tNV2\t X \t20-39\t1
"""


def widest(widths: Sequence[Sequence[int]]) -> int:
    """The narrowest link of the widest ring, by trying all orders; 0: there is none."""
    first, *others = range(len(widths))
    rings = ((first, *order, first) for order in permutations(others))
    return max(min(widths[i][j] for i, j in pairwise(order)) for order in rings)


def drawn(random: Random, count: int, share: float) -> list[list[int]]:
    table = [[0] * count for _ in range(count)]
    for i in range(count):
        for j in range(i):
            width = random.randint(1, 4) if random.random() < share else 0
            table[i][j] = table[j][i] = width
    return table


@pytest.mark.parametrize("count", range(3, 8))
def test_the_ring_is_the_widest_of_all_orders(count: int) -> None:
    random, found = Random(count), 0
    for _ in range(60):
        table = drawn(random, count, random.choice((0.3, 0.6, 0.9)))
        order = ring(table)
        if order is None:
            assert widest(table) == 0
            continue
        found += 1
        assert sorted(order) == list(range(count))
        assert min(table[i][j] for i, j in pairwise((*order, order[0]))) == widest(
            table
        )
    assert 0 < found < 60


@pytest.mark.parametrize(
    ("gpus", "name", "told"),
    [
        ((0,), None, None),
        ((0, 1), "NV2", None),
        ((0, 3), "SYS", None),
        ((0, 1, 2), "SYS", "the slowest pair's, SYS; NVLinks make no ring"),
        ((0, 1, 2, 3), "NV1", "the ring of NVLinks 0-2-3-1; a pair has SYS"),
    ],
)
def test_where_there_is_no_ring_the_slowest_pair_counts_and_is_told(
    gpus: tuple[int, ...], name: str | None, told: str | None
) -> None:
    found = links(part(nvidia_smi.table(CUBE, "box.topo"), gpus))
    if name is None:
        assert found is None
    else:
        assert found is not None
        assert found.name == name
        assert str(found.told).startswith(str(told))


def test_pairs_that_are_alike_are_not_told() -> None:
    for name in ("NV12", "SYS"):
        table = [["X" if i == j else name for j in range(40)] for i in range(40)]
        assert links(table) == Links(name)
    buses = [["X", "PIX", "SYS"], ["PIX", "X", "SYS"], ["SYS", "SYS", "X"]]
    assert links(buses) == Links("SYS")


@pytest.mark.parametrize("given", [["box.csv", "box.topo"], ["box.csv"]])
def test_a_host_has_the_rate_of_its_ring_and_says_so(
    given: list[str], tmp_path: Path
) -> None:
    names = [f"{i}, Tesla V100-SXM2-16GB, 16160\n" for i in range(4)]
    (tmp_path / "box.csv").write_text("".join(names))
    (tmp_path / "box.topo").write_text(CUBE)
    read = nvidia_smi.read([tmp_path / name for name in given])
    (node,) = read["cluster"]["nodes"]
    assert node["intra_gbytes_per_s"] == 25  # one NVLink of a V100
    (row,) = [row for row in read["assumed"] if row.what == "links within box"]
    assert row[1:] == (
        "25 GB/s",
        "the ring of NVLinks 0-2-3-1; a pair has SYS",
        "-o intra_gbytes_per_s=X",
    )


BRIDGES = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity
GPU0\t X \tNV4\tPHB\tPHB\t0-15
GPU1\tNV4\t X \tPHB\tPHB\t0-15
GPU2\tPHB\tPHB\t X \tNV4\t0-15
GPU3\tPHB\tPHB\tNV4\t X \t0-15
"""


def test_pairs_that_bridges_join_are_told_and_may_be_nodes(tmp_path: Path) -> None:
    """By default a host is one node, which all targets can launch."""
    rows = "".join(f"{i}, NVIDIA RTX A6000, 49140\n" for i in range(4))
    (tmp_path / "box.csv").write_text(rows)
    (tmp_path / "box.topo").write_text(BRIDGES)
    paths = [tmp_path / "box.csv", tmp_path / "box.topo"]
    read = nvidia_smi.read(paths)
    (node,) = read["cluster"]["nodes"]
    assert (node["count"], node["intra_gbytes_per_s"]) == (4, 31.5)
    (row,) = [row for row in read["assumed"] if row.what == "links within box"]
    assert row.source == "the slowest pair's, PHB; NVLinks join only 0-1, 2-3"
    assert "-o nvlinks=groups" in row.change
    read = nvidia_smi.read(paths, nvlinks="groups")
    cluster = Cluster.model_validate(read["cluster"], strict=False)
    assert [(one.name, one.count, one.machine) for one in cluster.nodes] == [
        ("box-0-1", 2, "box"),
        ("box-2-3", 2, "box"),
    ]
    assert {one.intra_gbytes_per_s for one in cluster.nodes} == {4 * 14.0625}
    assert cluster.link("box-0-1", "box-2-3")[1] == 31_500_000_000
    (row,) = [row for row in read["assumed"] if row.what.startswith("box, which")]
    assert row.what == "box, which has GPUs in 2 groups of NVLinks"


@pytest.mark.parametrize("seed", range(20))
def test_groups_are_what_links_reach(seed: int) -> None:
    random = Random(seed)
    count = random.randint(1, 9)
    widths = [[0] * count for _ in range(count)]
    for _ in range(random.randint(0, count)):
        one, other = random.randrange(count), random.randrange(count)
        widths[one][other] = widths[other][one] = one != other
    graph = networkx.Graph([(i, j) for i in range(count) for j in range(count)
                            if widths[i][j]])  # fmt: skip
    graph.add_nodes_from(range(count))
    found = {frozenset(one) for one in topology.groups(widths)}
    assert found == {frozenset(one) for one in networkx.connected_components(graph)}


@pytest.mark.parametrize(
    ("card", "link", "is_told"),
    [
        ("NVIDIA H100 80GB HBM3", "NODE", True),
        ("NVIDIA H100 80GB HBM3", "NV18", False),
        ("NVIDIA L40S", "NODE", False),
    ],
)
def test_a_table_without_the_nvlinks_of_its_cards_is_told(
    card: str, link: str, is_told: bool, tmp_path: Path
) -> None:
    names = "GPU0 GPU1 GPU2"
    rows = [["X" if i == j else link for j in range(3)] for i in range(3)]
    lines = [names, *(f"GPU{i} {' '.join(row)}" for i, row in enumerate(rows))]
    (tmp_path / "h.topo").write_text("\n".join(lines) + "\n")
    path = tmp_path / "h.csv"
    path.write_text("".join(f"{i}, {card}, 46068\n" for i in range(3)))
    assumed = nvidia_smi.read([path])["assumed"]
    told = [row.source for row in assumed if row.what == "links within h"]
    assert bool(told) is is_told
    assert all("topo -mp" in source for source in told)
