"""Every card through whatever takes cards: it is used, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from exporter_plans import EVEN, instance

from hetopt import catalogue
from hetopt.catalogue import Gpu
from hetopt.errors import HetoptError, InstanceError
from hetopt.formats import exporting
from hetopt.formats.assembling import Listed, assembly
from hetopt.formats.importing.clusters import Host, Settings, assumed
from hetopt.scheduling.catalogue import gpu_type
from hetopt.schema import Instance
from hetopt.text.complaints import validated

GPUS = catalogue.gpus()
TPU, OLD = "TPUv5p", "V100-32GB-SXM2"
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 256,
    "vocab_size": 1000,
    "hidden_act": "silu",
}
WORK = {"sequence_length": 64, "global_batch": 8, "micro_batch_sizes": [1]}
LINK = "inter_gbytes_per_s=25"


def assembled(folder: Path, cards: list[str], *options: str) -> dict[str, Any]:
    config, hosts = folder / "config.json", folder / "hosts"
    config.write_text(json.dumps(LLAMA))
    hosts.write_text("".join(f"n{i} slots=2 type={c}\n" for i, c in enumerate(cards)))
    return assembly(
        config, Listed("hostfile", [hosts]), [LINK, *options], WORK
    ).document


def of(card: str) -> Instance:
    """An instance whose nodes all have that card."""
    data = instance().model_dump_json().replace('"big"', json.dumps(card))
    return Instance.model_validate_json(data)


@pytest.mark.parametrize("card", GPUS.values(), ids=GPUS)
def test_a_card_is_planned_with_its_figures(tmp_path: Path, card: Gpu) -> None:
    data = validated(Instance, assembled(tmp_path, [card.name]), "made")
    gpu, (node,) = data.planned_cluster.gpus[card.name], data.planned_cluster.nodes
    assert gpu.peak_tflops == card.peak_tflops
    assert node.intra_gbytes_per_s == card.link_gbytes_per_s
    precision = data.workload.costs.precision
    assert precision == ("bf16_mixed" if card.has_bf16 else "fp16_mixed")
    assert gpu_type(card.name).peak_tflops == card.peak_tflops


@pytest.mark.parametrize("card", GPUS.values(), ids=GPUS)
def test_a_target_takes_a_card_or_refuses_it_by_name(card: Gpu) -> None:
    data = of(card.name)
    for target in exporting.names():
        why = [r for r in exporting.reasons(target, data, EVEN) if card.name in r]
        if card.is_gpu and target not in (*("jobset", "kueue"), "skypilot"):
            assert not why
        elif not card.is_gpu and target not in exporting.ANY_MAKER:
            assert any(card.maker in reason for reason in why)
        if why:
            with pytest.raises(HetoptError, match=card.name):
                exporting.export_plan(target, data, EVEN)


@pytest.mark.parametrize("card", GPUS.values(), ids=GPUS)
def test_skypilot_and_kubernetes_ask_by_names_that_are_known(card: Gpu) -> None:
    asked, data = card.accelerator_name, of(card.name)
    if card.beyond_skypilot is None:
        text = "".join(exporting.export_plan("skypilot", data, EVEN).values())
        assert f"{asked}: 8" in text
    else:
        (why,) = exporting.reasons("skypilot", data, EVEN)
        assert card.beyond_skypilot in why
    if card.maker == "NVIDIA" and card.product is not None:
        jobs = yaml.safe_load(
            exporting.export_plan("jobset", data, EVEN)["jobset.yaml"]
        )
        assert card.product.replace(" ", "-") in json.dumps(jobs)
    else:
        assert any(card.name in w for w in exporting.reasons("jobset", data, EVEN))


def test_cards_without_sixteen_bits_in_common_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InstanceError, match=f"no bf16 on {OLD} and no fp16 on {TPU}"):
        assembled(tmp_path, [TPU, OLD])
    with pytest.raises(InstanceError, match=f"'fp16_mixed'.*{TPU} has no fp16"):
        assembled(tmp_path, [TPU], "precision=fp16_mixed")
    told = assembled(tmp_path, [TPU, OLD], "precision=bf16_mixed")
    assert told["workload"]["costs"]["memory"]["precision"] == "bf16_mixed"


def test_links_of_other_makers_are_called_so() -> None:
    rows = assumed([Host("n1", "MI300X", 8, "hosts")], Settings())
    (links,) = [row for row in rows if row.what == "links of MI300X in a host"]
    assert links.value == "448 GB/s"
    assert links.source == "data sheet, 7 links of InfinityFabric3"
