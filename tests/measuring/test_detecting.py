"""`hetopt detect` against a stand-in for NVML: what it says becomes a cluster."""

import json
import sys
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from typer.testing import CliRunner

from hetopt import cli
from hetopt.errors import InstanceError, Unsupported
from hetopt.formats import nvidia_smi
from hetopt.measuring.detecting import detected
from hetopt.schema import Cluster

A100, T4, GB200 = "NVIDIA A100-SXM4-80GB", "Tesla T4", "NVIDIA GB200"


class FakeNvml:
    """GPUs by name."""

    class NVMLError(Exception):
        """As NVML's."""

    memory: ClassVar[dict[str, int]] = {A100: 81920, T4: 15360, GB200: 189471}

    def __init__(self, gpus: list[str]) -> None:
        self.gpus = gpus

    def nvmlInit(self) -> None:
        if not self.gpus:
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:
        self.gpus = []

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetName(self, gpu: int) -> bytes:
        return self.gpus[gpu].encode()

    def nvmlDeviceGetMemoryInfo(self, gpu: int) -> Any:
        return SimpleNamespace(total=self.memory[self.gpus[gpu]] * 2**20)


def found(monkeypatch: pytest.MonkeyPatch, nvml: FakeNvml, **options: Any) -> Cluster:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    cluster = detected("box", **options)["cluster"]
    return Cluster.model_validate_json(json.dumps(cluster))


def test_one_type_is_what_nvidia_smi_tells_of_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    names = [f"{i}, {A100}, 81920\n" for i in range(4)]
    (tmp_path / "box.csv").write_text("".join(names))
    printed = nvidia_smi.read([tmp_path / "box.csv"])["cluster"]
    same = Cluster.model_validate_json(json.dumps(printed))
    assert found(monkeypatch, FakeNvml([A100] * 4)) == same


def test_two_types_are_two_nodes_joined_by_the_slower_bus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gpus = [A100, T4, A100, T4]
    cluster = found(monkeypatch, FakeNvml(gpus))
    assert sorted(node.count for node in cluster.nodes) == [2, 2]
    assert len({node.gpu for node in cluster.nodes}) == 2
    one, two = (node.name for node in cluster.nodes)
    assert cluster.link(one, two) == (0, Fraction("15.75e9"))  # PCIe 3.0, the T4's
    given = found(monkeypatch, FakeNvml(gpus), inter_gbytes_per_s=12.0)
    assert given.inter.gbytes_per_s == 12
    assert {node.adapters for node in given.nodes} == {None}  # no network is between
    ported = found(monkeypatch, FakeNvml(gpus), ports=2, port_gbytes_per_s=5.0)
    assert ported.inter.gbytes_per_s == 10
    assert {node.adapters for node in ported.nodes} == {2}


def test_no_driver_is_said_with_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unsupported, match="hetopt import nvidia_smi"):
        found(monkeypatch, FakeNvml([]))


def test_what_is_detected_can_be_planned_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    nvml = FakeNvml([A100] * 2)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)  # type: ignore[arg-type]
    out = str(tmp_path / "here.yaml")
    words = ["detect", "--name", "box", "--instance", "tiny/two-nodes", "--out", out]
    assert CliRunner().invoke(cli.app, words).exit_code == 0
    planned = CliRunner().invoke(cli.app, ["plan", out, "--json"])
    assert planned.exit_code == 0, planned.output
    gpus = json.loads(planned.stdout)["evaluation"]["peak_memory_mib"]
    assert set(gpus) <= {"box:0", "box:1"}


def test_a_bus_that_no_sheet_tells_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(InstanceError, match="GB200-186GB, whose bus is not known"):
        found(monkeypatch, FakeNvml([T4, GB200]))
    given = found(monkeypatch, FakeNvml([T4, GB200]), inter_gbytes_per_s=10.0)
    assert given.inter.gbytes_per_s == 10
