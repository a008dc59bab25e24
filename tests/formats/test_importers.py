"""Importers: what people have of their machines and models becomes an instance."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from model_configs import LLAMA_3_8B as CONFIG

from hetopt.catalogue import gpus
from hetopt.catalogue import model as model_fields
from hetopt.errors import InstanceError
from hetopt.formats import hostfile, huggingface, kubectl, nvidia_smi, sinfo
from hetopt.formats.assembling import Listed, assembly
from hetopt.formats.exporting import kubernetes
from hetopt.formats.importing import Imported, listing
from hetopt.schema import Cluster, Instance, ModelSpec

RUN = "sinfo -N -h -o '%N %G'"
A100 = "NVIDIA A100-SXM4-80GB"


def put(folder: Path, name: str, *lines: str) -> Path:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def smi(count: int, product: str = A100, mib: int = 81920) -> list[str]:
    return [f"{index}, {product}, {mib}" for index in range(count)]


def cluster(read: dict[str, Any]) -> Cluster:
    """What an importer read, as the schema sees it."""
    return Cluster.model_validate_json(json.dumps(read["cluster"]))


# --- models ----------------------------------------------------------------------


def test_a_config_becomes_the_preset_of_the_same_model(tmp_path: Path) -> None:
    path = put(tmp_path, "config.json", json.dumps(CONFIG))
    read = huggingface.read([path], name="llama-3-8b")
    made = ModelSpec.model_validate_json(json.dumps(read["model"]))
    preset = ModelSpec.model_validate(model_fields("llama-3-8b"))
    assert made.architecture is not None  # for the trainer: presets have the shape
    told = {"architecture": made.architecture, "other_parameters": made.hidden}
    assert made == preset.model_copy(update=told)


# --- hostfiles -------------------------------------------------------------------


def test_types_are_given_a_meaning_or_figures(tmp_path: Path) -> None:
    path = put(tmp_path, "hosts", "n1 slots=2 type=A100", "n2 slots=1 type=new")
    told: dict[str, Any] = {"inter_gbytes_per_s": 1.0, "reserve_mib": 0}
    types = "a100:A100-40GB-PCIe,new:500/32.5"
    found = cluster(hostfile.read([path], types=types, **told))
    assert found.gpus["A100-40GB-PCIe"].memory_gib == 40
    assert (
        found.nodes[0].intra_gbytes_per_s == 31.5
    )  # a bridge is not taken for granted
    assert (found.gpus["new"].peak_tflops, found.gpus["new"].memory_gib) == (500, 32.5)


# --- nvidia-smi ------------------------------------------------------------------


def test_a_card_whose_memory_is_the_cpus_has_that_of_its_sheet(tmp_path: Path) -> None:
    path = tmp_path / "spark.csv"
    path.write_text("0, NVIDIA GB10, [N/A]\n")
    assert listing.format_of(path) == "nvidia_smi"
    read = nvidia_smi.read([path], reserve_mib=0)
    (gpu,) = read["cluster"]["gpus"].values()
    assert int(gpu["memory_gib"]) == 122570 // 1024  # as Linux has it


def test_nvidia_smi_lists_gpus_by_name_with_the_memory_of_their_sheets(
    tmp_path: Path,
) -> None:
    lines = [f"GPU {i}: {A100} (UUID: GPU-12-{i})" for i in range(4)]
    found = cluster(nvidia_smi.read([put(tmp_path, "n1.txt", *lines)]))
    hosts = put(tmp_path, "hosts", f"n1 slots=4 type={A100.replace(' ', '-')}")
    assert found == cluster(hostfile.read([hosts]))
    lines[1:] = ["  MIG 1g.10gb     Device  0: (UUID: MIG-ab)", *lines[1:]]
    read = nvidia_smi.read([put(tmp_path, "n1.txt", *lines)])
    assert [node.count for node in cluster(read).nodes] == [3]
    (row,) = [row for row in read["assumed"] if row.value == OUT]
    assert row.what == "GPU 0 of n1"
    assert row.source == "in parts (MIG); start with CUDA_VISIBLE_DEVICES=1,2,3"
    assert row.change == "nvidia-smi -i 0 -mig 0"
    with pytest.raises(InstanceError, match=r"No whole GPUs found: GPU 0 .*-mig 0"):
        nvidia_smi.read([put(tmp_path, "n1.txt", *lines[:2])])
    with pytest.raises(InstanceError, match="line 1: found 'GPU 3"):
        nvidia_smi.read([put(tmp_path, "n1.txt", lines[-1])])


BOX = ["0, RTX 3090, 24576", "1, NVIDIA GeForce RTX 4090, 24564", "2, RTX 3090, 24000"]
NAMES = ["box-rtx-3090", "box-nvidia-geforce-rtx-4090"]


def test_a_machine_with_two_types_of_cards_is_two_nodes_joined_by_the_bus(
    tmp_path: Path,
) -> None:
    box = put(tmp_path, "box.csv", *BOX)
    read = nvidia_smi.read([box], reserve_mib=0)
    found = cluster(read)
    assert [(n.name, n.gpu, n.count) for n in found.nodes] == [
        (NAMES[0], "RTX3090", 2),
        (NAMES[1], "RTX4090", 1),
    ]
    assert {node.machine for node in found.nodes} == {"box"}
    assert found.nodes[0].intra_gbytes_per_s == 31.5  # no bridge is taken for granted
    assert found.gpus["RTX3090"].memory_gib == 23.437  # the least of the type
    assert found.link(*NAMES) == (0, Fraction("31.5e9"))
    (row,) = [row for row in read["assumed"] if row.what.startswith("box, which")]
    assert row.value == f"nodes {', '.join(NAMES)}, joined at 31.5 GB/s"
    assert row.change == f"--island '{','.join(NAMES)}=X'"
    alone = cluster(nvidia_smi.read([box], inter_gbytes_per_s=12.0))
    assert alone.link(*NAMES) == (0, 12 * 10**9)


def test_a_mixed_machine_beside_others_keeps_its_bus(tmp_path: Path) -> None:
    box = put(tmp_path, "box.csv", *BOX)
    other = put(tmp_path, "n2.csv", *smi(2))
    with pytest.raises(InstanceError, match="found 2 hosts, and no file says how"):
        nvidia_smi.read([box, other])
    found = cluster(nvidia_smi.read([box, other], inter_gbytes_per_s=1.25))
    assert found.link(*NAMES) == (0, Fraction("31.5e9"))
    assert {found.link(name, "n2") for name in NAMES} == {(0, Fraction("1.25e9"))}


def test_the_link_of_a_mixed_machine_is_changed_as_its_row_says(tmp_path: Path) -> None:
    path = put(tmp_path, "hosts", "n1 gpu:rtx4090:1,gpu:rtx3090:2", "n2 gpu:l40s:2")
    workload = {"sequence_length": 128, "global_batch": 8, "micro_batch_sizes": [1]}

    def assembled(*islands: str) -> Imported:
        hosts = Listed("sinfo", [path], islands)
        return assembly(Path("gpt2"), hosts, ["inter_gbytes_per_s=1"], workload)

    rows = [row for row in assembled().assumed if row.what.startswith("n1, which")]
    words = rows[0].change.removeprefix("--island '").removesuffix("X'") + "64Gb/s"
    made = assembled(words, "n1-*,n2=2GB/s@1us").document
    data = Instance.model_validate_json(json.dumps(made))
    link = data.planned_cluster.link
    assert link("n1-rtx4090", "n1-rtx3090") == (Fraction(1, 10**6), 2 * 10**9)
    made = assembled(words).document
    link = Instance.model_validate_json(json.dumps(made)).planned_cluster.link
    assert link("n1-rtx4090", "n1-rtx3090") == (0, 8 * 10**9)
    assert link("n1-rtx4090", "n2") == (0, 10**9)


# --- sinfo -----------------------------------------------------------------------


WRONG: dict[Any, list[tuple[list[str], str]]] = {
    hostfile: [
        (["n1"], "line 1: found 'n1', expected `HOST slots=N`"),
        (["n1 slots=0 type=T4"], "line 1: slots: found '0'"),
        (["n1 slots=2 type=T4", "n1 slots=2 type=T4"], "line 2: found host 'n1' again"),
        (["n1 slots=2 kind=T4"], "line 1: found the field 'kind'"),
        (["n1 slots=2"], "line 1: found no type of GPU for 'n1'"),
        (["n1 slots=2 type=Z9"], "line 1: found GPU 'Z9'"),
        (["n1 slots=1 type=T4", "n2 slots=1 type=T4"], "give -o inter_gbytes_per_s"),
        (["# nobody"], "no host with GPUs"),
    ],
    nvidia_smi: [
        (["0, T4"], "line 1: found '0, T4', expected `0, NAME, MIB`"),
        (["1, Tesla T4, 15360"], "line 1: found '1, Tesla T4, 15360'"),
        (["0, Tesla T4, [N/A]"], "line 1: memory.total: found '[N/A]'"),
        (["0, GB200, 9999", "1, L4, 9999"], "GB200-186GB, whose bus is not"),
        (["index, name, memory.total"], "found no GPU"),
    ],
    sinfo: [
        (["n1"], "line 1: found 'n1', expected `NODES GRES` or `NODES"),
        (["p* gpu:t4:2"], "line 1: found 'p* gpu:t4:2', expected `NODES GRES`"),
        (["n1 gpu:a:b:c"], "line 1: found 'gpu:a:b:c'"),
        (["n1 gpu:t4:2,gpu:l4:2", "n1 gpu:t4:2"], "line 2: found node 'n1' with gpu:t"),
        (["n1 gpu:t4:2", "n1 gpu:t4:3"], "line 2: found node 'n1' with gpu:t4:3"),
        (["n[4-1] gpu:t4:2"], "line 1: found the range 4-1"),
        (["n[1-999999] gpu:t4:2"], "line 1: found the range 1-999999"),
        (["n[a] gpu:t4:2"], "line 1: found the range [a]"),
        (["n1 (null)"], "No GPU nodes found: nothing in column 2 is a gpu"),
        (["p n1"], f"No GPU nodes found: column 2 is not a GRES. Run: {RUN}"),
        (["p gpu:t4:2 3 idle"], "line 1: found 'p gpu:t4:2 3 idle', expected `NODES"),
        (
            [
                "PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST",
                "gpu*         up 2-00:00:00      3    mix gpu[01-03]",
            ],
            "line 1: No GPU nodes found: none of the columns PARTITION, AVAIL, "
            f"TIMELIMIT, NODES, STATE, NODELIST is that of GRES. Run: {RUN}",
        ),
        (["CPUS GRES", "4 gpu:t4:2"], "is that of nodes. Run"),
        (
            ["NODELIST REASON GRES", "n1 not responding gpu:t4:2"],
            "line 2: found 'n1 not responding gpu:t4:2', expected a word in each of "
            f"the 3 columns. Run: {RUN}",
        ),
        (
            ["NODELIST GRES MEMORY", "n1 gpu:rtx4090:1 64G"],
            "line 2: memory: found '64G', expected",
        ),
        (
            ["NODELIST GRES STATE", "n1 gpu:t4:2 drained"],
            "No usable GPU nodes found: n1 is left out, its state is drained",
        ),
    ],
}


@pytest.mark.parametrize(
    ("module", "lines", "message"),
    [(module, *row) for module, rows in WRONG.items() for row in rows],
)
def test_what_is_wrong_with_a_list_is_told_by_line(
    tmp_path: Path, module: Any, lines: list[str], message: str
) -> None:
    with pytest.raises(InstanceError) as caught:
        module.read([put(tmp_path, "n1.csv", *lines)])
    assert message in str(caught.value)


NODE = """\
NodeName={name} Arch=x86_64 CoresPerSocket=32
   CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=0.21
   AvailableFeatures=ib,State=no
   ActiveFeatures=(null)
   Gres={gres}
   NodeAddr={name} NodeHostName={name} Version=23.11.4
   OS=Linux 5.14.0 #1 SMP
   RealMemory=515000 AllocMem=0 FreeMem=480000 Sockets=2 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A
   Partitions=gpu
   CfgTRES=cpu=64,mem=515000M,billing=64,gres/gpu=4
   Reason=State=wrong [root@2026-01-01T00:00:00]

"""


@pytest.mark.parametrize("is_in_one_line", [False, True])
def test_scontrol_shows_what_sinfo_lists(tmp_path: Path, is_in_one_line: bool) -> None:
    nodes = {
        "gpu01": ("gpu:h100:4(S:0-1)", "IDLE"),
        "gpu02": ("gpu:h100:4(S:0-1)", "MIXED+CLOUD+POWERED_DOWN"),
        "cpu01": ("(null)", "IDLE"),
        "gpu03": ("gpu:h100:4(S:0-1)", "IDLE+DRAIN"),
        "gpu04": ("gpu:h100:4(S:0-1)", "DOWN*"),
        "gpu05": ("gpu:h100:4(S:0-1)", "IDLE+NOT_RESPONDING"),
    }
    blocks = [NODE.format(name=n, gres=g, state=s) for n, (g, s) in nodes.items()]
    if is_in_one_line:
        blocks = [" ".join(block.split()) + "\n" for block in blocks]
    told: dict[str, Any] = {"types": "h100:H100-80GB-SXM5", "inter_gbytes_per_s": 25.0}
    read = sinfo.read([put(tmp_path, "nodes.txt", "".join(blocks))], **told)
    lines = [f"{name} {gres} 515000" for name, (gres, _) in [*nodes.items()][:3]]
    lines = ["NODELIST GRES MEMORY", *lines]
    listed = sinfo.read([put(tmp_path, "sinfo.txt", *lines)], **told)
    assert read["cluster"] == listed["cluster"]
    assert {node["host_gib"] for node in read["cluster"]["nodes"]} == {502.9}
    rows = [(row.what, row.source) for row in read["assumed"] if row.value == OUT]
    assert rows == [(n, f"its state is {nodes[n][1]}") for n in [*nodes][3:]]
    alone = put(tmp_path, "cpu.txt", NODE.format(name="a", gres="(null)", state="IDLE"))
    with pytest.raises(InstanceError, match="No GPU nodes found: nothing in Gres is"):
        sinfo.read([alone])


OUT = "left out"


@pytest.mark.parametrize("told", ["", "RealMemory=1"])
def test_slurm_that_knows_no_memory_of_a_host_limits_none(
    tmp_path: Path, told: str
) -> None:
    """Its default is one MiB a node."""
    text = put(tmp_path, "nodes.txt", f"NodeName=n1 Gres=gpu:h100:8 {told}")
    read = sinfo.read([text], types="h100:H100-80GB-SXM5")
    assert "host_gib" not in read["cluster"]["nodes"][0]


def test_parts_of_a_machine_share_the_memory_of_its_host(tmp_path: Path) -> None:
    lines = ["NODELIST GRES MEMORY", "n1 gpu:rtx4090:1,gpu:rtx3090:3 131072+"]
    read = sinfo.read([put(tmp_path, "hosts", *lines)])
    parts = {node["gpu"]: node["host_gib"] for node in read["cluster"]["nodes"]}
    assert parts == {"RTX4090": 32.0, "RTX3090": 96.0}


# --- kubectl ---------------------------------------------------------------------

H100 = "NVIDIA-H100-80GB-HBM3"


def k8s(name: str, gpus: Any = "8", product: str = H100, **fields: Any) -> Any:
    """A node as kubectl shows it, with what feature discovery says of its GPUs."""
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.memory": "81559"}
    allocatable = {"cpu": "96", "memory": "1056Gi", "pods": "110"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels | fields.get("labels", {})},
        "spec": {"podCIDR": "10.0.0.0/24"} | fields.get("spec", {}),
        "status": {
            "allocatable": allocatable
            | ({"nvidia.com/gpu": gpus} if gpus else {})
            | fields.get("allocatable", {}),
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": fields.get("ready", "True")},
            ],
        },
    }


def kubectl_of(folder: Path, *items: Any, **options: Any) -> dict[str, Any]:
    tree = {"apiVersion": "v1", "kind": "List", "items": list(items)}
    return kubectl.read([put(folder, "nodes.json", json.dumps(tree))], **options)


@pytest.mark.parametrize(
    ("memory", "gib"),
    [
        ("1056Gi", 1056.0),
        ("1056256512Ki", 1007.3),
        ("1081606668288", 1007.3),
        ("2T", 1862.6),
        ("1081606668288000m", 1007.3),
        (1081606668288, 1007.3),
    ],
)
def test_memory_that_pods_can_have_is_that_of_the_host(
    tmp_path: Path, memory: Any, gib: float
) -> None:
    found = cluster(kubectl_of(tmp_path, k8s("b", allocatable={"memory": memory})))
    assert found.nodes[0].host_gib == pytest.approx(gib)


@pytest.mark.parametrize(
    ("labels", "card", "gbytes_per_s"),
    [
        ({"node.kubernetes.io/instance-type": "p4d.24xlarge"}, "A100-40GB-SXM4", 50.0),
        (
            {"node.kubernetes.io/instance-type": "Standard_ND96isr_H100_v5"},
            "H100-80GB-SXM5",
            400.0,
        ),
        (
            {
                "cloud.google.com/gke-accelerator": "nvidia-h100-mega-80gb",
                "node.kubernetes.io/instance-type": "a3-megagpu-8g",
            },
            "H100-80GB-SXM5",
            225.0,
        ),
        ({"cloud.google.com/gke-accelerator": "nvidia-l4"}, "L4", None),
        (
            {"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"},
            "A100-40GB-SXM4",
            None,
        ),
    ],
)
def test_nodes_that_a_cloud_rents_have_its_cards(
    labels: dict[str, str], card: str, gbytes_per_s: float | None, tmp_path: Path
) -> None:
    """Feature discovery is not everywhere; the cloud's own labels are."""
    items = [k8s("a"), k8s("b")]
    for item in items:
        item["metadata"]["labels"] = dict(labels)
    told = {"inter_gbytes_per_s": 25.0} if gbytes_per_s is None else {}
    found = cluster(kubectl_of(tmp_path, *items, **told))
    assert [(node.gpu, node.count) for node in found.nodes] == [(card, 8)] * 2
    assert found.inter.gbytes_per_s == pytest.approx(gbytes_per_s or 25.0)


def test_the_label_of_a_product_that_jobs_ask_for_means_the_card(
    tmp_path: Path,
) -> None:
    for name, card in gpus().items():
        if card.product is None or card.maker != "NVIDIA":
            continue
        label = kubernetes.label_of(name)
        found = cluster(kubectl_of(tmp_path, k8s("a", 1, label, labels=NO_MEMORY)))
        assert [node.gpu for node in found.nodes] == [name]


def test_a_product_that_the_catalogue_has_not_is_kept(tmp_path: Path) -> None:
    label, card = "NVIDIA-A100X", "A100-80GB-PCIe"
    options = {"types": f"{label}:{card}", "inter_gbytes_per_s": 25.0}
    items = [k8s("a", 4, label), k8s("b", 4, "NVIDIA-H100-80GB-HBM3")]
    found = cluster(kubectl_of(tmp_path, *items, **options))
    assert [(x.gpu, x.product) for x in found.nodes] == [
        (card, label),
        ("H100-80GB-SXM5", None),
    ]
    path = put(tmp_path, "n1.csv", "0, NVIDIA A100X, 81920\n")
    read = cluster(nvidia_smi.read([path], types=f"NVIDIA A100X:{card}"))
    assert [(x.gpu, x.product) for x in read.nodes] == [(card, "NVIDIA A100X")]


NO_MEMORY = {"nvidia.com/gpu.memory": "0"}
MIG = "kubectl label node {} nvidia.com/mig.config=all-disabled --overwrite"


def test_nodes_and_gpus_that_cannot_be_planned_on_are_told(tmp_path: Path) -> None:
    sharing = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
    items = [
        k8s("good", 7, labels={"nvidia.com/gpu.count": "8"}),
        k8s("cordoned", spec={"unschedulable": True}),
        k8s("silent", ready="Unknown"),
        k8s("single", 56, f"{H100}-MIG-1g.10gb"),
        k8s("mixed", 2, allocatable={"nvidia.com/mig-1g.10gb": "42"}),
        k8s("parts", None, allocatable={"nvidia.com/mig-7g.80gb": "8"}),
        k8s("shared", 32, f"{H100}-SHARED"),
        k8s("sliced", 32, labels=sharing),
        k8s("xe", None, allocatable={"gpu.intel.com/xe": "8"}),
    ]
    read = kubectl_of(tmp_path, *items, inter_gbytes_per_s=25.0)
    nodes = [(node.name, node.count) for node in cluster(read).nodes]
    assert nodes == [("good", 7), ("mixed", 2)]
    mig = "parts of GPUs (MIG)"
    slices = "its GPUs are shared by pods"
    assert [row for row in read["assumed"] if row.value == "left out"] == [
        (what, "left out", why, change)
        for what, why, change in (
            ("1 more GPU of good", "not allocatable", "kubectl describe node good"),
            ("cordoned", "cordoned", "kubectl uncordon cordoned"),
            ("silent", "not ready", "kubectl describe node silent"),
            ("single", mig, MIG.format("single")),
            ("1g.10gb of mixed", mig, MIG.format("mixed")),
            ("7g.80gb of parts", mig, MIG.format("parts")),
            ("shared, sliced", slices, "the device plugin without sharing"),
            ("gpu.intel.com/xe of xe", "not read", "--from hostfile"),
        )
    ]


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"kind": "List"}, "items: found no list, expected one of nodes. Run: kubectl"),
        ({"items": [{}]}, "items[0].metadata"),
        ({"items": [{**k8s("a"), "kind": "Pod"}]}, "items[0].kind: found 'Pod'"),
        ({"items": [k8s("a", None)]}, "No GPU nodes found: no node has nvidia.com/gpu"),
        (
            {"items": [k8s("a", spec={"unschedulable": True})]},
            "No usable GPU nodes found: a is left out, cordoned. To change that: ",
        ),
        ({"items": [k8s("a", "8k")]}, "items[0]: nvidia.com/gpu: found '8k'"),
        (
            {"items": [k8s("a", allocatable={"memory": "64 GB"})]},
            "items[0]: memory: found '64 GB', expected a quantity such as",
        ),
        ({"items": [k8s("a"), k8s("a")]}, "items[1]: found host 'a' again"),
    ],
)
def test_what_is_wrong_with_nodes_is_told_by_item(
    tmp_path: Path, tree: Any, message: str
) -> None:
    path = put(tmp_path, "nodes.json", json.dumps(tree))
    with pytest.raises(InstanceError) as caught:
        kubectl.read([path], inter_gbytes_per_s=1.0)
    assert message in str(caught.value)
    assert str(path) in str(caught.value)
