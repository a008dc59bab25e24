"""Options and fields take quantities with units, and mean what plain numbers mean."""

from fractions import Fraction
from pathlib import Path

import pytest
from command_line import document, typed
from disk import put
from places import INSTANCES

from hetopt.files import load_instance
from hetopt.text.parsing import read_tree


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
    error = document(*words, code=2)["error"]
    assert error["kind"] == "usage_error"
    assert named in error["message"]
    assert error["field"] == words[2]


def test_fields_of_a_file_take_units(tmp_path: Path) -> None:
    tree = read_tree(INSTANCES / "tiny" / "two-nodes.yaml")
    inter, workload = tree["cluster"]["inter"], tree["workload"]
    inter |= {"gbytes_per_s": 3.125, "latency_us": 5}
    workload |= {"sequence_length": 2048, "iterations": 1_000_000}
    plain = put(tmp_path / "plain.json", tree)
    inter |= {"gbytes_per_s": "25GbE", "latency_us": "5us"}
    workload |= {"sequence_length": "2Ki", "iterations": "1M"}
    said = put(tmp_path / "said.json", tree)
    assert load_instance(said) == load_instance(plain)
    assert load_instance(said).digest == load_instance(plain).digest


def test_assemble_joins_islands_of_hosts(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 512, "num_hidden_layers": 4}
    config |= {"num_attention_heads": 8, "vocab_size": 1000, "intermediate_size": 1024}
    model = put(tmp_path / "config.json", config)
    each = (f"{n} slots=2 type=L40S\n" for n in ("a-1", "a-2", "b"))
    hosts = put(tmp_path / "hosts", "".join(each))
    out = tmp_path / "instance.yaml"
    words = ["assemble", model, hosts, "--out", out]
    words += ["--from", "hostfile", "--global-batch", "8", "--sequence-length", "2Ki"]
    words += ["-o", "inter_gbytes_per_s=25GbE"]
    told = typed(*words, "--island", "a-*=400Gb/s@5us")
    assert told.exit_code == 0, told.output
    assert "b" not in read_tree(out)["cluster"]["inter"]["islands"][0]["nodes"]
    cluster = load_instance(out).planned_cluster
    assert cluster.link("a-1", "a-2") == (Fraction(5, 10**6), 50 * 10**9)
    assert cluster.link("a-1", "b") == (0, Fraction(25, 8) * 10**9)
    for island in ("a-*=400G", "a-*", "c*=400Gb/s", ",=3"):
        assert typed(*words, "--island", island).exit_code == 2
