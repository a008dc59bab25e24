"""The same hosts, in whichever form a person's tool lists them."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hetopt.catalogue import find_gpu, rented
from hetopt.errors import InstanceError
from hetopt.files import load_instance
from hetopt.formats import kubectl
from hetopt.formats.importing import listing
from hetopt.formats.importing.listing import AUTO, document
from hetopt.schema import Cluster

H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
HOSTS = [("h1", H100, 8, 81559), ("h2", H100, 8, 81559), ("a1", A100, 4, 81920)]
GRES = {H100: "h100", A100: "a100"}
TYPES = "h100:H100-80GB-SXM5,a100:A100-80GB-SXM4"
Files = dict[str, str]


def smi_l(gpu: str, count: int) -> list[str]:
    return [f"GPU {i}: {gpu} (UUID: GPU-0-{i})" for i in range(count)]


def each(write: Callable[[str, int, int], str], suffix: str) -> Files:
    return {f"{n}.{suffix}": write(gpu, count, mib) for n, gpu, count, mib in HOSTS}


def csv(gpu: str, count: int, mib: int) -> str:
    return "\n".join(f"{i}, {gpu}, {mib} MiB" for i in range(count))


def headed(gpu: str, count: int, mib: int) -> str:
    rows = [f"{gpu}, GPU-{i}, {mib} MiB, Disabled" for i in range(count)]
    return "\n".join(["name, uuid, memory.total [MiB], mig.mode.current", *rows])


def pdsh() -> Iterator[str]:
    for name, gpu, count, _ in HOSTS:
        yield from (f"{name}: {line}" for line in smi_l(gpu, count))


def pdsh_with_headers() -> Iterator[str]:
    for name, gpu, count, mib in HOSTS:
        yield f"{name}: index, name, memory.total [MiB]"
        yield from (f"{name}: {line}" for line in csv(gpu, count, mib).splitlines())


def gres(gpu: str, count: int) -> str:
    return f"gpu:{GRES[gpu]}:{count}(S:0-1)"


def rows(line: str, *header: str) -> str:
    text = [
        line.format(name=name, gres=gres(gpu, count)) for name, gpu, count, _ in HOSTS
    ]
    return "\n".join([*header, *text]) + "\n"


def k8s() -> str:
    items = [
        {
            "kind": "Node",
            "metadata": {
                "name": name,
                "labels": {"nvidia.com/gpu.product": gpu.replace(" ", "-")},
            },
            "status": {"allocatable": {"nvidia.com/gpu": str(count)}},
        }
        for name, gpu, count, _ in HOSTS
    ]
    return json.dumps({"kind": "List", "items": items})


FORMS: dict[str, Files] = {
    "nvidia-smi -L": each(lambda gpu, count, _: "\n".join(smi_l(gpu, count)), "txt"),
    "query, csv": each(csv, "csv"),
    "query, header": each(headed, "csv"),
    "query, other columns before": each(
        lambda gpu, count, mib: "\n".join(
            ["timestamp, name, pci.bus_id, memory.total [MiB]"]
            + [f"2026/01/02 03:04:05.1, {gpu}, 0:{i}.0, {mib} MiB"
               for i in range(count)]
        ), "csv",
    ),
    "pdsh": {"all.txt": "\n".join(pdsh())},
    "pdsh, headers": {"all.txt": "\n".join(pdsh_with_headers())},
    "sinfo -N -h": {"s.txt": rows("{name} {gres}")},
    "sinfo, state": {"s.txt": rows("{name} {gres} idle~")},
    "sinfo, header": {
        "s.txt": rows("gpu* {name} idle {gres}", "PARTITION NODELIST STATE GRES")
    },
    "sinfo, bars": {"s.txt": rows("{name}|{gres}|idle", "NODELIST|GRES|STATE")},
    "scontrol": {"s.txt": rows("NodeName={name} Gres={gres} State=IDLE\n")},
    "slurm.conf": {
        "s.conf": "NodeName=DEFAULT State=UNKNOWN Gres=gpu:h100:8\n"
        "NodeName=h[1-2] CPUs=64\nNodeName=a1 \\\n  Gres=gpu:a100:4 # new\n"
        "NodeName=c[1-9] Gres=(null)\nPartitionName=gpu Nodes=ALL State=UP\n"
    },
    "kubectl": {"nodes.json": k8s()},
    "hostfile": {
        "hosts": "".join(f"{n} slots={c} type={g.replace(' ', '-')}\n"
                         for n, g, c, _ in HOSTS)
    },
    "hostfile, range": {
        "hosts": "h[1-2] slots=8 type=H100-80GB-SXM5\na1:4 type=A100-80GB-SXM4\n"
    },
    "table": {
        "hosts.csv": "Server,Card,Number of GPUs\n"
        + "".join(f"{n},{g},{c}\n" for n, g, c, _ in HOSTS)
        + "login,none,0\n"
    },
    "table, a GPU a row": {
        "hosts.csv": "hostname;index;name\n"
        + "".join(f"{n};{i};{g}\n" for n, g, c, _ in HOSTS for i in range(c))
    },
    "joined": {
        "h1.txt": "\n".join(smi_l(H100, 8)),
        "hosts": "h2 slots=8 type=H100-80GB-SXM5\n",
        "s.txt": "a1 gpu:a100:4\n",
    },
}  # fmt: skip


def put(folder: Path, files: Files) -> list[Path]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return [folder / name for name in files]


def read(paths: list[Path], **options: Any) -> Cluster:
    told = {"inter_gbytes_per_s": 25.0, "types": TYPES, "reserve_mib": 0, **options}
    made = document(AUTO, paths, told)["cluster"]
    return Cluster.model_validate(made, strict=False)


@pytest.mark.parametrize("name", FORMS)
def test_hosts_are_the_same_in_every_list(name: str, tmp_path: Path) -> None:
    paths = put(tmp_path, FORMS[name])
    found = read(paths)
    for path in paths:  # with the lines of Windows, too
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert read(paths) == found
    card = {gpu: find_gpu(gpu) for _, gpu, _, _ in HOSTS}
    assert [(node.name, node.gpu, node.count) for node in found.nodes] == [
        (n, getattr(card[gpu], "name", None), count) for n, gpu, count, _ in HOSTS
    ]


KUBERAY = """\
apiVersion: ray.io/v1
kind: RayCluster
spec:
  headGroupSpec: {template: {spec: {containers: [{name: head}]}}}
  workerGroupSpecs:
    - groupName: gpus
      replicas: 2
      template:
        spec:
          nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB}
          containers:
            - name: worker
              resources: {limits: {nvidia.com/gpu: 8}}
"""
SELECTOR = "nodeSelector: {nvidia.com/gpu.product: NVIDIA-A100-SXM4-40GB}"
SELECTORS = (
    "nodeSelector: {cloud.google.com/gke-accelerator: nvidia-tesla-a100}",
    "nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}",
    "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
    "{nodeSelectorTerms: [{matchExpressions: [{key: nvidia.com/gpu.product, "
    "operator: In, values: [NVIDIA-A100-SXM4-40GB]}]}]}}}",
)


@pytest.mark.parametrize("selector", [SELECTOR, *SELECTORS])
def test_pods_of_kuberay_are_a_cluster(selector: str, tmp_path: Path) -> None:
    types = "A100:A100-40GB-SXM4,A100-40GB:A100-40GB-SXM4"
    text = KUBERAY.replace(SELECTOR, selector)
    found = read(put(tmp_path, {"x.yaml": text}), types=types)
    assert [(node.name, node.gpu, node.count) for node in found.nodes] == [
        (f"gpus-{i}", "A100-40GB-SXM4", 8) for i in (0, 1)
    ]


def test_tables_of_hosts_tell_cards_by_memory_and_columns_unread(
    tmp_path: Path,
) -> None:
    text = "host,gpu,gpus,vram_gb,rack\na,A100,8,80,1\nb,A100,4,40,1\na,RTX 3090,1,,1\n"
    types = "a100-80gb:A100-80GB-SXM4,A100-40GB:A100-40GB-PCIe"
    told = {"types": types, "inter_gbytes_per_s": 1.0}
    made = document(AUTO, put(tmp_path, {"hosts.csv": text}), told)
    nodes = [(n["name"], n["gpu"], n["count"]) for n in made["cluster"]["nodes"]]
    assert nodes == [
        ("a-a100-80gb", "A100-80GB-SXM4", 8),
        ("a-rtx-3090", "RTX3090", 1),
        ("b", "A100-40GB-PCIe", 4),
    ]
    left = [row.what for row in made["assumed"] if row.value == "left out"]
    assert left == ["columns rack of hosts.csv"]


@pytest.mark.parametrize(
    ("column", "card"),
    [
        *(("gpu_capacity_num", "gpu_model"), ("GPUs per node", "accelerator_type")),
        *(("gpuCount", "gpu"), ("gpu", "gpu_type"), ("cards", "gpu_name")),
        *(("count", "name"), ("gpus", "type")),
    ],
)
def test_the_number_of_gpus_is_known_by_the_name_of_its_column(
    column: str, card: str, tmp_path: Path
) -> None:
    rows = [("a", "A100-SXM4-80GB", 8, 3, 64), ("b", "A10", 1, 1, 32)]
    for heads, order in (
        (("node_name", card, column, "free_gpus", "cpus"), (0, 1, 2, 3, 4)),
        (("cpus", "free_gpus", column, card, "node_name"), (4, 3, 2, 1, 0)),
    ):
        lines = [",".join(str(row[i]) for i in order) for row in rows]
        paths = put(tmp_path, {"t.csv": "\n".join([",".join(heads), *lines])})
        assert [node.count for node in read(paths).nodes] == [8, 1]


AMD = "AMD Instinct MI300X OAM"
AMDS = {
    "rocm-smi --csv": "device,Card Series,Card Vendor\n"
    + "".join(f'card{i},{AMD},"Advanced Micro Devices, Inc."\n' for i in range(8)),
    "amd-smi --csv": "gpu,market_name,vendor_id\n"
    + "".join(f"{i},{AMD},0x1002\n" for i in range(8)),
    "kubectl": json.dumps(
        {
            "kind": "Node",
            "metadata": {
                "name": "a",
                "labels": {"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"},
            },
            "status": {"allocatable": {"amd.com/gpu": "8"}},
        }
    ),
}


@pytest.mark.parametrize("tool", AMDS)
def test_amds_tools_name_the_cards_of_a_host(tool: str, tmp_path: Path) -> None:
    name = "a.json" if tool == "kubectl" else "a.txt"
    (node,) = read(put(tmp_path, {name: AMDS[tool]})).nodes
    assert (node.name, node.gpu, node.count) == ("a", "MI300X", 8)


def test_of_several_documents_those_with_hosts_are_read(tmp_path: Path) -> None:
    other = "apiVersion: v1\nkind: Namespace\nmetadata: {name: train}\n"
    one = read(put(tmp_path, {"x.yaml": KUBERAY}), types="A100:A100-40GB-SXM4")
    for text in (f"{other}---\n{KUBERAY}", f"---\n{KUBERAY}\n---\n{other}"):
        paths = put(tmp_path, {"x.yaml": text})
        assert read(paths, types="A100:A100-40GB-SXM4").nodes == one.nodes
        told = {"types": "A100:A100-40GB-SXM4", "inter_gbytes_per_s": 1.0}
        left = [row.what for row in document(AUTO, paths, told)["assumed"]]
        assert any("of x.yaml (Namespace)" in what for what in left)
    with pytest.raises(InstanceError, match="found 2 YAML documents, expected one"):
        load_instance(put(tmp_path, {"i.yaml": f"{other}---\n{other}"})[0])


@pytest.mark.parametrize(
    "text", ["node,gpus\na,8\nb,4\n", "vm,gpu_count,cpus\n1,8,2\n2,4,2\n"]
)
def test_a_table_without_cards_asks_for_them(text: str, tmp_path: Path) -> None:
    paths = put(tmp_path, {"t.csv": text})
    nodes = read(paths, gpu="L4").nodes
    assert [(node.gpu, node.count) for node in nodes] == [("L4", 8), ("L4", 4)]
    with pytest.raises(InstanceError, match="found no type of GPU"):
        read(paths)


def test_a_gpu_for_displays_is_left_out_and_told(tmp_path: Path) -> None:
    names = [A100, "NVIDIA DGX Display", A100]
    lines = [f"GPU {i}: {name} (UUID: GPU-{i})" for i, name in enumerate(names)]
    made = document(AUTO, put(tmp_path, {"dgx.txt": "\n".join(lines)}), {})
    (node,) = made["cluster"]["nodes"]
    assert (node["gpu"], node["count"]) == ("A100-80GB-SXM4", 2)
    told = [(row.what, row.source) for row in made["assumed"] if row[1] == "left out"]
    why = "for displays; start with CUDA_VISIBLE_DEVICES=0,2"
    assert told == [("GPU 1 of dgx", why)]


def test_a_type_of_a_hostfile_may_be_a_machine_that_is_rented(tmp_path: Path) -> None:
    paths = put(tmp_path, {"hosts": "n[1-2] slots=8 type=p4d.24xlarge\n"})
    found = document(AUTO, paths, {})["cluster"]
    nodes = [(node["name"], node["gpu"], node["count"]) for node in found["nodes"]]
    assert nodes == [("n1", "A100-40GB-SXM4", 8), ("n2", "A100-40GB-SXM4", 8)]
    assert found["inter"]["gbytes_per_s"] == 400 / 8


def test_accelerators_of_nodes_that_are_not_planned_on_are_told(tmp_path: Path) -> None:
    gpu, labels = "nvidia.com/gpu", {"nvidia.com/gpu.product": "NVIDIA-L4"}
    statuses = [
        {"allocatable": {gpu: "6"}, "capacity": {gpu: "8"}},
        {"allocatable": {gpu: "0"}, "capacity": {gpu: "8"}},
        {"allocatable": {"nvidia.com/gpu.shared": "4"}},
        *({"allocatable": {word: "8"}} for word in (
            *("aws.amazon.com/neuron", "google.com/tpu", "huawei.com/Ascend910"),
            *("gpu.intel.com/i915", "example.com/fpga"),
        )),
    ]  # fmt: skip
    items = [
        {"kind": "Node", "metadata": {"name": f"n{i}", "labels": labels}, "status": one}
        for i, one in enumerate(statuses)
    ]
    text = json.dumps({"kind": "List", "items": items})
    made = document(AUTO, put(tmp_path, {"nodes.json": text}), {})
    assert [(n["name"], n["count"]) for n in made["cluster"]["nodes"]] == [("n0", 6)]
    left = [x for x in kubectl.listed([tmp_path / "nodes.json"])[1]]
    assert [x.name for x in left] == [
        *("2 more GPUs of n0", "8 GPUs of n1", "nvidia.com/gpu.shared of n2"),
        *("aws.amazon.com/neuron of n3", "google.com/tpu of n4"),
        *("huawei.com/Ascend910 of n5", "gpu.intel.com/i915 of n6"),
    ]


def test_pods_of_kuberay_are_counted_by_hosts_and_others_are_told(
    tmp_path: Path,
) -> None:
    several = KUBERAY.replace("replicas: 2", "replicas: 1\n      numOfHosts: 2")
    asking = several.replace("limits: {nvidia", "requests: {nvidia")
    for text in (several, asking):
        found = read(put(tmp_path, {"x.yaml": text}), types="A100:A100-40GB-SXM4")
        assert [(n.name, n.count) for n in found.nodes] == [
            ("gpus-0", 8),
            ("gpus-1", 8),
        ]
    intel = KUBERAY.replace("nvidia.com/gpu:", "gpu.intel.com/i915:", 1)
    with pytest.raises(InstanceError, match=r"intel\.com/i915 of gpus is left out"):
        read(put(tmp_path, {"x.yaml": intel}))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("s.txt", "NODELIST AVAIL_FEATURES GRES\na ib,l4,24gb gpu:2\nb t4 gpu:2\n"
         "c t4,l4 gpu:2\n"),
        ("s.txt", "NodeName=a Gres=gpu:2 AvailableFeatures=l4\nNodeName=b Gres=gpu:2 "
         "AvailableFeatures=t4,hdr\nNodeName=c Gres=gpu:2 AvailableFeatures=(null)\n"),
    ],
)  # fmt: skip
def test_gpus_without_a_type_are_of_the_card_that_a_feature_names(
    name: str, text: str, tmp_path: Path
) -> None:
    told = {"gpu": "A10", "inter_gbytes_per_s": 1.0}
    found = document(AUTO, put(tmp_path, {name: text}), told)["cluster"]["nodes"]
    assert [(x["name"], x["gpu"]) for x in found] == [
        *(("a", "L4"), ("b", "T4"), ("c", "A10"))
    ]
    assert not any("gres" in x for x in found)  # Slurm knows no type of them


@pytest.mark.parametrize(
    "lines",
    [
        "a gpu:l4:1 drain\nb gpu:l4:1 idle\nc gpu:l4:1 alloc$\n",
        "a gpu:l4:1 drained*\nb gpu:l4:1 mix\nc gpu:l4:1 down\n",
        "a|gpu:l4:1|down~\nb|gpu:l4:1|resv\nc|gpu:l4:1|inval\n",
        "NODELIST GRES STATE\na gpu:l4:1 maint\nb gpu:l4:1 comp\nc gpu:l4:1 drng\n",
        "NodeName=a Gres=gpu:l4:1 State=IDLE+DRAIN\nNodeName=b Gres=gpu:l4:1 "
        "State=IDLE\nNodeName=c Gres=gpu:l4:1 State=DOWN*\n",
    ],
)
def test_nodes_on_which_no_job_starts_are_told_in_every_list(
    lines: str, tmp_path: Path
) -> None:
    made = document(AUTO, put(tmp_path, {"s.txt": lines}), {})
    assert [node["name"] for node in made["cluster"]["nodes"]] == ["b"]
    told = [row.what for row in made["assumed"] if row.value == "left out"]
    assert sorted(told) == ["a", "c"]


def test_parts_of_gpus_are_left_out_of_slurms_lists(tmp_path: Path) -> None:
    rows = "g[1-2] gpu:a100_3g.40gb:8,gpu:h200:4\ng3 gpu:1g.10gb:7\n"
    paths = put(tmp_path, {"s.txt": rows})
    made = document(AUTO, paths, {"inter_gbytes_per_s": 25.0})
    nodes = [(node["name"], node["count"]) for node in made["cluster"]["nodes"]]
    assert nodes == [("g1", 4), ("g2", 4)]
    told = [row.what for row in made["assumed"] if row.value == "left out"]
    assert ", ".join(told) == ("a100_3g.40gb of g1, a100_3g.40gb of g2, 1g.10gb of g3")
    alone = put(tmp_path, {"t.txt": "g3 gpu:1g.10gb:7\n"})
    with pytest.raises(InstanceError, match=r"parts of GPUs \(MIG\)"):
        document(AUTO, alone, {})


def test_a_machine_that_is_rented_has_its_own_cards_and_network(tmp_path: Path) -> None:
    kind = "nodeSelector: {node.kubernetes.io/instance-type: p4d.24xlarge}"
    text = KUBERAY.replace("RayCluster", "RayService")
    text = text.replace("spec:\n  head", "spec:\n rayClusterConfig:\n  head", 1)
    text = text.replace(SELECTOR, kind)
    paths = put(tmp_path, {"x.yaml": text})
    made = document(AUTO, paths, {})
    nodes = [(n["name"], n["gpu"], n["count"]) for n in made["cluster"]["nodes"]]
    assert nodes == [(f"gpus-{i}", "A100-40GB-SXM4", 8) for i in (0, 1)]
    assert made["cluster"]["inter"]["gbytes_per_s"] == 400 / 8
    (row,) = [one for one in made["assumed"] if one.what == "rate between machines"]
    assert row.value == "50 GB/s"
    told = document(AUTO, paths, {"inter_gbytes_per_s": 12.5})
    assert told["cluster"]["inter"]["gbytes_per_s"] == 12.5
    (tmp_path / "hosts").write_text("a slots=8 type=A100-40GB-SXM4\n")
    with pytest.raises(InstanceError, match="no file says how fast their network is"):
        document(AUTO, [*paths, tmp_path / "hosts"], {})
    other = put(tmp_path, {"y.yaml": text.replace("gpu: 8", "gpu: 16")})
    with pytest.raises(InstanceError, match="expected 8 x A100-40GB-SXM4"):
        document(AUTO, other, {})


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.yaml", "resources: {accelerators: 'A100:8'}", "found no list of hosts"),
        ("x.yaml", "kind: RayCluster\nspec: 3", "expected named fields"),
        ("x.yaml", KUBERAY.replace("replicas: 2", "replicas: 99999"), "at most"),
        ("t.csv", "host,gpu_type,gpus_of_rack\na,L4,8\n", "no column with the number"),
        ("t.csv", "host,gpu_type,free_gpus\na,L4,8\n", "no column with the number"),
        (
            "x.txt",
            "| NVIDIA-SMI 550 |\n|   0  NVIDIA L4  On  | 0 |\n",
            "smi -L of each",
        ),
        (
            "x.txt",
            "n1 | CHANGED | rc=0 >>\nGPU 0: L4 (UUID: G-1)\n",
            "line 1: found 'n1",
        ),
        ("s.json", '{"sinfo": [{"gres": {"total": "gpu:l4:8"}}]}', "sinfo -N -h"),
        ("gres.conf", "NodeName=a Name=gpu Type=l4 Count=2\n", "No GPU nodes found"),
        ("x.txt", "=== ROCm System Management ===\n", "--showproductname --csv"),
        (
            "x.txt",
            "a: GPU 0: L4 (UUID: G-1)\nb: ssh: no route\n",
            "line 2: found 'b: s",
        ),
        ("hosts", "n1 slots=4 type=p5.48xlarge\n", "expected 8, the GPUs of a p5.48"),
        ("x.txt", "NAME  STATUS  ROLES  AGE\nn1  Ready  a  3d\n", "get nodes -o json"),
        ("x.txt", "PARTITION NODELIST\ngpu g[1-3]\n", "Run: sinfo -N -h -o '%N %G'"),
    ],
)
def test_what_leaves_hosts_open_is_refused(
    name: str, text: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(InstanceError) as caught:
        read(put(tmp_path, {name: text}))
    assert message in str(caught.value)


def test_every_machine_that_clouds_rent_has_a_card_of_the_catalogue() -> None:
    for name, machine in rented().items():
        card = find_gpu(machine.card)
        assert card is not None, name
        assert card.name == machine.card
        assert machine.gpus in (1, 2, 4, 8, 16)


def test_a_format_has_the_names_of_its_tools() -> None:
    assert listing.format_named("scontrol") == "sinfo"
    with pytest.raises(InstanceError, match="expected a format that describes hosts"):
        listing.format_named("metis")
