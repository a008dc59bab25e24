"""How many ports share a host's rate: as told, and as taken for granted."""

from pathlib import Path
from typing import Any

import pytest
from assembled import assembled, instance_of

from hetopt.catalogue import gpu as card
from hetopt.catalogue import gpus, machine
from hetopt.errors import InstanceError, UnknownName
from hetopt.formats.importing import ports
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.search.fast_cost import FastCost, Pipe, Slot

HOSTS = [f"b{i} slots=8 type=A100-80GB-SXM4" for i in (1, 2)]
WORK = {"sequence_length": 4096, "global_batch": 64}


def made(folder: Path, *options: str, hosts: Any = HOSTS) -> tuple[Instance, Any]:
    """The instance of `assemble`, and the row of what is between hosts."""
    found = assembled(folder, hosts, *options, work=WORK)
    rows = [row for row in found.assumed if row.what == "between hosts"]
    assert len(rows) < 2
    return instance_of(found), rows[0] if rows else None


@pytest.mark.parametrize("rate", ["1GbE", "25GbE", "100GbE", "12.5"])
def test_a_host_has_one_port_of_ethernet_and_the_row_says_whose_rate_it_is(
    tmp_path: Path, rate: str
) -> None:
    instance, row = made(tmp_path, f"inter_gbytes_per_s={rate}")
    cluster = instance.planned_cluster
    assert [node.adapters for node in cluster.nodes] == [1, 1]
    each = f"{cluster.inter.gbytes_per_s:g} GB/s"
    assert row.value == f"1 port of {each} per host, shared by all its GPUs"
    assert "DGX-A100 has 8 ports of 25 GB/s" in row.source
    assert row.change == "-o ports=N, port_gbytes_per_s=X"


@pytest.mark.parametrize("name", sorted(gpus()))
def test_ports_carry_the_rate_and_are_no_more_than_the_machine_has(name: str) -> None:
    try:
        usual = machine(name)
    except UnknownName:
        assert ports.usual(card(name, ""), 8, 400) == 1
        return
    one, all_of_them = usual.adapter_gbytes_per_s, usual.adapters
    if one is None or all_of_them is None:
        assert ports.usual(card(name, ""), usual.gpus, 400) == 1
        return
    for rate in (0.125, 3.125, 12.5):
        assert ports.usual(card(name, ""), usual.gpus, rate) == 1
    most = all_of_them * one
    assert ports.usual(card(name, ""), usual.gpus, most) == all_of_them
    assert ports.usual(card(name, ""), usual.gpus, 10 * most) == all_of_them
    for many in range(1, all_of_them + 1):
        assert ports.usual(card(name, ""), usual.gpus, many * one) == many


def test_what_is_told_is_not_assumed(tmp_path: Path) -> None:
    instance, row = made(tmp_path, "inter_gbytes_per_s=100", "ports=4")
    assert [node.adapters for node in instance.planned_cluster.nodes] == [4, 4]
    assert row is None
    instance, row = made(tmp_path, "ports=8", "port_gbytes_per_s=400Gb/s")
    assert instance.planned_cluster.inter.gbytes_per_s == 400
    assert [node.adapters for node in instance.planned_cluster.nodes] == [8, 8]
    assert row is None
    both = ("ports=3", "port_gbytes_per_s=0.1", "inter_gbytes_per_s=0.3")
    instance, _ = made(tmp_path, *both)
    assert instance.planned_cluster.inter.gbytes_per_s == 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["ports=8", "port_gbytes_per_s=50", "inter_gbytes_per_s=50"],
            "inter_gbytes_per_s: found 50, and 8 ports of 50 GB/s, expected 400",
        ),
        (["port_gbytes_per_s=50"], "no ports, expected how many a host has"),
        (["ports=0", "inter_gbytes_per_s=1"], "ports: found .*from 1 to 4096"),
        (["ports=4"], "give -o inter_gbytes_per_s=X"),
    ],
)
def test_rates_that_disagree_or_lack_are_refused(
    tmp_path: Path, options: list[str], message: str
) -> None:
    with pytest.raises(InstanceError, match=message):
        made(tmp_path, *options)


def test_one_host_has_no_ports_to_share(tmp_path: Path) -> None:
    instance, row = made(tmp_path, hosts=HOSTS[:1])
    assert instance.planned_cluster.nodes[0].adapters is None
    assert row is None


@pytest.mark.parametrize(("t", "stages"), [(8, 1), (4, 2), (1, 8)])
def test_all_gradients_go_through_the_port_of_a_host(
    tmp_path: Path, t: int, stages: int
) -> None:
    """16 GB over 1 GbE, whatever a pipeline's stages, one pipeline being on each."""
    options = ("inter_gbytes_per_s=1GbE", "zero=0", "recompute=full", "interleave=1")
    instance, _ = made(tmp_path, *options)
    each = instance.model.layers // stages
    pipes = [
        Pipe(32, 1, tuple(Slot(a, t, j * each, (j + 1) * each) for j in range(stages)))
        for a in (0, 1)
    ]
    judged = training_plan.evaluate(instance, FastCost(instance).plan(pipes))
    ends = 2 * instance.model.embedding_parameters
    gigabytes = 2 * (sum(instance.model.parameters) + ends) / 1e9
    seconds = judged.parts["sync_us"] / 1e6
    assert seconds == pytest.approx(gigabytes / 0.125, rel=1e-6)
    assert seconds > 128
