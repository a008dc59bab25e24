"""Options and fields take quantities with units, and mean what plain numbers mean."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from places import INSTANCES
from typer.testing import CliRunner

from hetopt import cli
from hetopt.files import load_instance
from hetopt.text.parsing import read_tree

RUN = CliRunner()


def answer(*words: str) -> Any:
    told = RUN.invoke(cli.app, [*words, "--json"])
    return told.exit_code, json.loads(told.stdout)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("plan", "tiny/two-nodes", "--time-limit", "1m"), "90min"),
        (("plan", "tiny/two-nodes", "--gap", "five"), "5%"),
        (("provision", "tiny/offers", "--deadline", "-3"), "at least 0"),
        (("provision", "tiny/offers", "--budget", "5€"), "$5500"),
        (("plan", "tiny/two-nodes", "--time-limit", "nan"), "at least 0"),
    ],
)
def test_what_is_no_quantity_is_refused(words: tuple[str, ...], named: str) -> None:
    code, found = answer(*words)
    assert code == 2
    assert found["error"]["kind"] == "usage_error"
    assert named in found["error"]["message"]
    assert found["error"]["field"] == words[2]


def test_fields_of_a_file_take_units(tmp_path: Path) -> None:
    tree = read_tree(INSTANCES / "tiny" / "two-nodes.yaml")
    inter, workload = tree["cluster"]["inter"], tree["workload"]
    inter |= {"gbytes_per_s": 3.125, "latency_us": 5}
    workload |= {"sequence_length": 2048, "iterations": 1_000_000}
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps(tree))
    inter |= {"gbytes_per_s": "25GbE", "latency_us": "5us"}
    workload |= {"sequence_length": "2Ki", "iterations": "1M"}
    said = tmp_path / "said.json"
    said.write_text(json.dumps(tree))
    assert load_instance(said) == load_instance(plain)
    assert load_instance(said).digest == load_instance(plain).digest


def test_assemble_joins_islands_of_hosts(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4}
    config |= {"num_attention_heads": 8, "vocab_size": 1000, "intermediate_size": 1024}
    (tmp_path / "config.json").write_text(json.dumps(config))
    hosts = tmp_path / "hosts"
    hosts.write_text("".join(f"{n} slots=2 type=L40S\n" for n in ("a-1", "a-2", "b")))
    out = tmp_path / "instance.yaml"
    words = ["assemble", str(tmp_path / "config.json"), str(hosts), "--out", str(out)]
    words += ["--from", "hostfile", "--global-batch", "8", "--sequence-length", "2Ki"]
    words += ["-o", "inter_gbytes_per_s=25GbE"]
    told = RUN.invoke(cli.app, [*words, "--island", "a-*=400Gb/s@5us"])
    assert told.exit_code == 0, told.output
    assert "b" not in read_tree(out)["cluster"]["inter"]["islands"][0]["nodes"]
    cluster = load_instance(out).planned_cluster
    assert cluster.link("a-1", "a-2") == (Fraction(5, 10**6), 50 * 10**9)
    assert cluster.link("a-1", "b") == (0, Fraction(25, 8) * 10**9)
    for island in ("a-*=400G", "a-*", "c*=400Gb/s", ",=3"):
        told = RUN.invoke(cli.app, [*words, "--island", island])
        assert told.exit_code == 2
