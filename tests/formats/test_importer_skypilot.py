"""SkyPilot's price lists: columns in any order; what is not read is told."""

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import document, typed
from disk import put
from flat import flat

import hetopt
from hetopt import problems
from hetopt.errors import InstanceError, UnknownName, Unsupported
from hetopt.files import load_instance
from hetopt.formats import importing
from hetopt.formats.skypilot import prices
from hetopt.schema import Offer, Search

LAMBDA = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,"
    "GpuInfo,SpotPrice"
)
RUNPOD = (
    "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Region,SpotPrice,"
    "Price,AvailabilityZone,GpuInfo"
)


def info(of_one: float, count: float, total: float) -> str:
    """A GpuInfo as catalogues print it, quoted for CSV."""
    gpu = {"Name": "X", "Count": count, "MemoryInfo": {"SizeInMiB": of_one}}
    return f'"{ {"Gpus": [gpu], "TotalGpuMemoryInMiB": total} }"'


def catalogue(folder: Path, header: str, *rows: str) -> Path:
    return put(folder / "vms.csv", "\n".join([header, *rows]) + "\n")


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """Two regions, a machine without GPUs, and memory of one GPU as the total."""
    return catalogue(
        tmp_path,
        LAMBDA,
        "cpu_4x,,,4.0,16.0,0.2,us-east-1,,",
        f"gpu_8x_v100,V100,8.0,92.0,448.0,6.32,us-east-1,{info(16384, 8.0, 16384)},",
        f"gpu_8x_v100_n,V100,8.0,88.0,448.0,6.0,us-east-1,{info(16384, 8.0, 16384)},",
        f"gpu_8x_v100,V100,8.0,92.0,448.0,5.0,asia,{info(16384, 8.0, 16384)},2.5",
        f"gpu_1x_a6000,A6000,1.0,14.0,100.0,1.09,us-east-1,{info(49152, 1.0, 49152)},",
        "gpu_1x_new,NEWCARD,1.0,14.0,100.0,9.0,us-east-1,,",
    )


def offers(path: Path, **options: Any) -> dict[str, Any]:
    read = prices.read([path], **options)
    return {offer["gpu"]: offer for offer in read["offers"]}


def test_the_cheapest_of_each_card_and_size_is_offered_by_region(listed: Path) -> None:
    found = offers(listed, region="us-east-1")
    assert set(found) == {"8xV100", "1xA6000"}
    assert found["8xV100"]["usd_per_hour"] == 0.75
    assert found["8xV100"]["gpus_per_instance"] == 8
    assert offers(listed)["8xV100"]["usd_per_hour"] == 0.625


def test_rows_that_are_left_out_and_cards_without_a_machine_are_told(
    listed: Path,
) -> None:
    with listed.open("a") as file:
        file.write(",L4,1.0,,,0.56,us-east-1,,\n")
    rows = {one.what: one.value for one in prices.read([listed])["assumed"]}
    assert rows == {
        "rows of cards that are not known": "left out: NEWCARD (1)",
        "price of L4": "the cards alone",
    }


def test_what_of_a_list_is_not_read_is_told(tmp_path: Path) -> None:
    rows = ["x,H100,8,24,us,0.09,1", "y,A10,0.5,1,us,0.09,1", "z,L4,1,,us,0.09,1"]
    rows += ["t,Trainium,16,20,us,0.09,1", "x,A100-80GB,8,0,us,0.09,1"]
    header = "InstanceType,AcceleratorName,AcceleratorCount,Price,Region,Egress,Quota"
    path = catalogue(tmp_path, header, *rows)
    assert [*offers(path)] == ["8xH100"]
    told = {row.what: row.value for row in prices.read([path])["assumed"]}
    assert told == {
        "columns of vms.csv": "not read: Egress, Quota",
        "rows of shares of a card": "left out: A10 (1)",
        "rows of cards without a price": "left out: L4 (1)",
        "rows of accelerators that are no GPUs": "left out: Trainium (1)",
        "rows of prices that are 0": "left out: A100-80GB (1)",
    }


def test_a_list_in_json_is_refused_by_name(tmp_path: Path) -> None:
    path = put(tmp_path / "offers.json", '[{"gpu_name": "RTX 4090", "dph_total": 3.2}]')
    with pytest.raises(InstanceError, match="found JSON, expected CSV"):
        offers(path)


def test_rates_of_loss_are_asked_for_and_never_invented(
    listed: Path, tmp_path: Path
) -> None:
    with pytest.raises(InstanceError, match="give --losses-per-hour N"):
        offers(listed, spot=True)
    with pytest.raises(InstanceError, match="without spot"):
        offers(listed, losses_per_hour=0.1)
    out = tmp_path / "market.yaml"
    words = ["import", "skypilot", str(listed), "--instance", "espresso/llama-1.3b"]
    words += ["--out", str(out), "--spot", "--losses-per-hour", "0.02"]
    told = typed(*words)
    assert told.exit_code == 2
    assert "give --restart-s and --checkpoint-every-s" in told.output
    assert not out.exists()
    words += ["--restart-s", "5min", "--checkpoint-every-s", "1h"]
    told = typed(*words)
    assert told.exit_code == 0, told.output
    made = load_instance(out)
    assert (made.workload.restart_s, made.workload.checkpoint_every_s) == (300, 3600)
    parts = document("provision", out)["evaluation"]
    assert parts["machines"][0]["place"] == "spot"
    lost = sum(row["machines"] for row in parts["machines"]) * 0.02 * 2100 / 3600
    assert parts["losses_factor"] == pytest.approx(1 + lost)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("p,T4,many,8,8,US,,1.0,US-1,", "line 2: AcceleratorCount: found 'many'"),
        ("p,T4,-1,8,8,US,,1.0,US-1,", "line 2: AcceleratorCount: found '-1'"),
        ("p,T4,1,8,8,US,,free,US-1,", "line 2: price: found 'free'"),
        ("p,T4,1,8,8,US,,nan,US-1,", "line 2: price: found 'nan'"),
        ("p,T4,1,8,8,US,,-2,US-1,", "line 2: price: found '-2'"),
        ("p,,,8,8,US,,1.0,US-1,", "no known GPU with a price"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, row: str, message: str
) -> None:
    with pytest.raises(InstanceError, match=message):
        offers(catalogue(tmp_path, RUNPOD, row))


def test_a_file_that_is_no_catalogue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match="no column AcceleratorName, Acc"):
        offers(catalogue(tmp_path, "name,cost", "a,1"))


def test_an_unknown_region_lists_the_known_ones(listed: Path) -> None:
    with pytest.raises(InstanceError, match="region 'mars', expected one of asia, us-"):
        offers(listed, region="mars")


def test_without_an_instance_the_offers_alone_are_written(
    listed: Path, tmp_path: Path
) -> None:
    out = tmp_path / "offers.json"
    assert typed("import", "skypilot", listed, "--out", out).exit_code == 0
    assert len(json.loads(out.read_text())["offers"]) == 2


def test_clouds_and_regions_are_told_apart(tmp_path: Path) -> None:
    paths = []
    for cloud, price in (("aws", 40), ("lambda", 30)):
        (tmp_path / cloud).mkdir()
        rows = [
            f"p,H100,8.0,8,8,{region},,{price + extra},a,"
            for extra, region in enumerate(("east", "west"))
        ]
        paths.append(catalogue(tmp_path / cloud, RUNPOD, *rows))
    read = {o["gpu"]: o["usd_per_hour"] for o in prices.read(paths)["offers"]}
    assert read == {"8xH100@aws": 5.0, "8xH100@lambda": 3.75}
    told = prices.read(paths, places="region")["offers"]
    assert {o["gpu"]: o["usd_per_hour"] for o in told} == {
        "8xH100@aws/east": 5.0,
        "8xH100@aws/west": 5.125,
        "8xH100@lambda/east": 3.75,
        "8xH100@lambda/west": 3.875,
    }
    assert len(prices.read(paths, places="none")["offers"]) == 1


def test_gpus_of_one_machine_synchronise_over_its_own_link(listed: Path) -> None:
    base = load_instance("espresso/llama-1.3b")
    within = offers(listed, region="us-east-1")["8xV100"]
    assert within["intra_gbytes_per_s"] > 1.25
    rented = Offer(**within)
    plain = rented.model_copy(update={"intra_gbytes_per_s": None})
    search = Search(micro_batches=4, data_parallel=(2, 3, 8, 16))
    times = []
    for offer in (rented, plain):
        fields = {"offers": (offer,), "search": search}
        data = problems.get("provisioning").data(base.model_copy(update=fields))
        times.append(data.offers[0].by_data_parallel)
    own, network = times
    for degree, inside in (("2", True), ("3", False), ("8", True), ("16", False)):
        assert (own[degree].sync_us < network[degree].sync_us) is inside
        assert own[degree].forward_us == network[degree].forward_us


def test_options_are_checked(listed: Path) -> None:
    with pytest.raises(UnknownName, match="unknown option 'regoin': expected one of"):
        importing.imported("skypilot", [listed], ["regoin=x"], None)
    with pytest.raises(
        InstanceError, match=r"quota: found .*, expected a whole number"
    ):
        importing.imported("skypilot", [listed], ["quota=some"], None)
    with pytest.raises(UnknownName, match="skypilot"):
        importing.imported("skipilot", [listed], [], None)
    with pytest.raises(Unsupported, match=r"suffix '\.txt'"):
        importing.check(Path("offers.txt"))


B200 = "big-8,B200,8,160,1792,44.00,r1,,"


def assembled(folder: Path, times: str, *options: str) -> Path:
    """An instance as `assemble` writes it, of a host and a model of the catalogue."""
    hosts, out = folder / "hosts.txt", folder / f"{times}.yaml"
    hosts.write_text("a slots=8\n", encoding="utf-8")
    words = ["assemble", "llama-2-7b", str(hosts), "--from", "hostfile"]
    words += ["--global-batch", "1024", "--sequence-length", "4096", "--times", times]
    words += ["--micro-batches", "1,2", "-o", "gpu=A100-80GB-SXM4"]
    words += [word for option in options for word in ("-o", option)]
    told = typed(*words, "--out", out)
    assert told.exit_code == 0, told.output
    return out


def imported(folder: Path, instance: Path) -> Any:
    out, listed = folder / f"market-{instance.name}", catalogue(folder, LAMBDA, B200)
    words = ["import", "skypilot", str(listed), "--instance", str(instance)]
    told = document(*words, "--tokens", "100B", "--out", out)
    return load_instance(out), told["assumed"]


def test_calibrated_instances_are_imported_as_analytic_ones(tmp_path: Path) -> None:
    made = {
        times: imported(tmp_path, assembled(tmp_path, times))
        for times in ("calibrated", "analytic")
    }
    (calibrated, told), (analytic, _) = made["calibrated"], made["analytic"]
    same = {"name": "x", "source": ""}
    assert calibrated.model_copy(update=same) == analytic.model_copy(update=same)
    assert "times and memory" in {row["what"] for row in told}


def test_what_the_instance_lets_a_plan_choose_is_kept(tmp_path: Path) -> None:
    own = assembled(tmp_path, "calibrated")
    base = load_instance(own).workload
    made, told = imported(tmp_path, own)
    assert made.workload.recomputes == base.recomputes
    assert made.workload.zeros == base.zeros
    assert made.workload.micro_batch_sizes == base.micro_batch_sizes
    assert {"recompute", "zero"} <= {row["what"] for row in told}
    found = hetopt.provision(made, deadline_s="10d")
    fixed = []
    for rule in made.workload.recomputes:
        other = made.workload.alternatives.model_copy(update={"recompute": ()})
        one = made.with_costs(recompute=rule).with_workload(alternatives=other)
        fixed.append(hetopt.provision(one, deadline_s="10d").objective)
    assert found.status == "optimal"
    assert found.objective == min(fixed)
    assert found.objective < max(fixed)
    assert found.evaluation.parts["chosen"]["recompute"] == "none"


def test_what_divides_no_stage_of_offers_is_refused_with_the_option(
    tmp_path: Path,
) -> None:
    own = assembled(tmp_path, "calibrated", "context_parallel=2")
    listed, out = catalogue(tmp_path, LAMBDA, B200), tmp_path / "m.yaml"
    told = typed("import", "skypilot", listed, "--instance", own, "--out", out)
    assert told.exit_code == 2
    assert "-o context_parallel=1" in told.output
    assert not out.exists()


def test_measured_layers_give_way_to_the_formula(tmp_path: Path) -> None:
    base = load_instance("espresso/llama-1.3b")
    tree = flat(base, exclude_unset=True)
    del tree["offers"]
    tree["cluster"] = {
        "gpus": {"A": {"peak_tflops": 1, "memory_gib": 1}},
        "nodes": [{"name": "a", "gpu": "A", "count": 1}],
    }
    row = {"gpu": "A", "tensor_parallel": 1, "micro_batch": 1}
    row["layer_us"] = [5] * base.model.layers
    tree["workload"].setdefault("costs", {})
    tree["requirements"] = {}
    tree["workload"]["costs"] |= {"layer_times": "profile", "profile": [row]}
    made, told = imported(tmp_path, put(tmp_path / "own.json", tree))
    assert made.workload.costs == base.workload.costs
    assert "the profile of the instance" in told[0]["source"]
    assert hetopt.provision(made).status == "optimal"
