"""Decoding: the formula by hand, engines within memory, tables of serving as found."""

import math
from itertools import chain, pairwise
from pathlib import Path
from random import Random
from statistics import median
from typing import get_args

import pytest
import yaml
from command_line import document, typed
from disk import put

import hetopt
from hetopt.catalogue import model as model_fields
from hetopt.costs import decoding
from hetopt.costs.decoding import DecoderShape, Engine, Links, Serving, engine, terms
from hetopt.errors import InstanceError
from hetopt.formats.runs import read
from hetopt.schema import Generation, GpuType, ModelSpec
from hetopt.schema.generation import EnginePrecision

#: 120 rows of AIConfigurator's `silicon_sample.csv` (NVIDIA, Apache-2.0).
SERVED = Path(__file__).with_name("served.csv")
TINY = ModelSpec(
    **{"name": "tiny", "layers": 2, "hidden": 1000, "heads": 10, "kv_heads": 2},
    **{"head_dim": 100, "intermediate": 4000, "vocabulary": 50_000, "gated": True},
)
WORK = Generation(
    answers=1, prompt_tokens=1000, answer_tokens={"mean": 500, "longest": 2000}
)
H100 = GpuType(peak_tflops=989.5, memory_gib=80)
LINKS = Links(100)


def preset(name: str) -> ModelSpec:
    return ModelSpec(**model_fields(name))


def made(name: str, degree: int = 8, gpu: GpuType = H100, **more: object) -> Engine:
    work = Generation(**dict(WORK) | more)
    found = engine(preset(name), work, gpu, "H100", degree, LINKS)
    assert found is not None
    return found


def test_terms_of_a_dense_model_by_hand() -> None:
    """Ten answers, a prompt in a hundred steps, on two GPUs."""
    on = Serving(100, 50, 1000, LINKS, gpus=2, degree=2, precision="bf16")
    matrices = 2 * 1000 * 1000 + 2 * 1000 * 200 + 3 * 4000 * 1000
    weights = 2 * (matrices + 2 * 1000)  # and norms
    scores = 10 * 2 * 4 * 1000 * 1250 + 0.01 * 2 * 4 * 1000 * 1000 * 500
    assert terms(DecoderShape.of(TINY), on, 10, 0.01, (1000, 500)) == pytest.approx(
        {
            "weights.16bit": 2 * (weights + 50_000 * 1000) / 2 / 1e12,
            "cache": 10 * 1250 * 2 * (2 * 200) * 2 / 2 / 1e12,
            "products": 2 * weights * (10 + 0.01 * 1000) / 2 / 1e14,
            "attention": scores / 2 / 5e13,
            "all_reduce": 2 * 2 * (10 + 10) * 1000 * 2 / 1e11,
            **{"layer": 2e-6, "layer.group": 2e-6},
            **dict.fromkeys(("weights", "layer.experts@vllm", "layer.indexer"), 0),
            "products.experts": 0,
        }
    )


def test_a_group_of_two_nodes_sums_in_each_and_between_them() -> None:
    """Of 4 layers, 3 answers and 16 bits: a ring has every byte twice, but its own."""
    one, size = Links(100, 2, 25, 1e-5), 4 * 3 * 1000 * 2 * 2
    between = 2 * size / 2 / 25e9 + 8 * 2 * 1e-5  # there and back, in each all-reduce
    assert one.seconds(8, size, 8) == pytest.approx(2 * size * 3 / 4 / 100e9 + between)
    assert one.seconds(2, size, 8) == pytest.approx(between)  # a GPU in each


def test_a_mixture_in_four_bits_multiplies_the_rest_in_sixteen() -> None:
    """Latent attention has each head multiply with all that a token keeps."""
    model = preset("deepseek-v3")
    shape, latent = DecoderShape.of(model), model.latent
    assert latent is not None
    on = Serving(4000, 1000, 1000, LINKS, 8, 8, "nvfp4")
    found = terms(shape, on, 10, 0, (1000, 500))
    assert found["products"] == pytest.approx(2 * shape.plain * 10 / 8e15)
    used = shape.routed * 8 / 256
    assert found["products.experts"] == pytest.approx(2 * used * 10 / 32e15)
    kept = latent.key_rank + latent.rotary
    each = 2 * 128 * (kept + latent.key_rank) * 1250
    assert found["attention"] == pytest.approx(61 * 10 * each / 8e15)


def test_experts_that_answers_reach_are_those_of_random_draws() -> None:
    shape = DecoderShape.of(preset("mixtral-8x7b"))
    on = Serving(1000, 1000, 1000, LINKS, 8, 8, "bf16")
    random = Random(1)
    for answers in (1, 3, 8):
        all_ = [random.sample(range(8), 2) for _ in range(4000 * answers)]
        draws = [len({*chain(*all_[x::4000])}) for x in range(4000)]
        read = terms(shape, on, answers, 0, (1, 1))["weights.16bit"] * 1e12 * 8 / 2
        reached = (read - shape.plain - shape.head) / shape.routed
        assert reached == pytest.approx(sum(draws) / 4000 / 8, rel=0.02)


@pytest.mark.parametrize("name", ["qwen3-32b", "qwen3-30b-a3b", "gpt-oss-20b"])
def test_more_answers_take_longer_and_quicker_memory_less(name: str) -> None:
    one = made(name)
    quicker = made(name, gpu=GpuType(**dict(H100) | {"memory_gbytes_per_s": 5000}))
    assert 0 < quicker.step_ns < one.step_ns
    slower = made(name, gpu=GpuType(**dict(H100) | {"peak_tflops": 100}))
    assert 0 < one.prompt_ns < slower.prompt_ns
    shape = DecoderShape.of(preset(name))
    rates = [Serving(1000, 1000, 1000, LINKS, n, n, "bf16") for n in (1, 2, 4, 8)]
    each = [terms(shape, on, 9, 0.1, (1000, 500)) for on in rates]
    for term in ("weights.16bit", "cache", "products"):
        # A group of more GPUs than there are heads of keys divides these no further.
        assert all(y[term] < x[term] for x, y in pairwise(each[:3]))
    assert not each[0]["all_reduce"]
    assert 0 < each[1]["all_reduce"] < each[3]["all_reduce"]
    assert made(name, 4).at_once < one.at_once


def test_an_engine_of_a_mixture_is_the_lesser_of_two_lines() -> None:
    found, shape = made("qwen3-30b-a3b", 2), DecoderShape.of(preset("qwen3-30b-a3b"))
    on = Serving(989.5, 989.5, 3350, LINKS, 2, 2, "bf16")
    for answers in (1, 4, 16, 32, 100, found.at_once):
        exact = 1e9 * decoding.seconds(terms(shape, on, answers, 0, (1000, 500)))
        assert 0.8 * exact <= found.ns(1, answers) <= exact + answers + 2
        assert found.ns(7, 7 * answers) == 7 * found.ns(1, answers)
    for answers in (1, 32, found.at_once):  # 32 ask for 256 of 128 experts
        exact = 1e9 * decoding.seconds(terms(shape, on, answers, 0, (1000, 500)))
        assert exact <= found.ns(1, answers)


def test_answers_fill_the_memory_and_weights_have_to_fit() -> None:
    """Keys and values of Qwen3-32B are 64 x 8 x 128 x 2 x 2 bytes a token."""
    held = 3000 * 64 * 8 * 128 * 2 * 2 / 2
    weights = preset("qwen3-32b").total_parameters * 2 / 2
    left = 0.9 * 80 * 2**30 - weights - 2 * 2**30
    assert made("qwen3-32b", 2).at_once == math.floor(left / held)
    big = preset("llama-3-70b")
    assert engine(big, WORK, H100, "H100", 1, LINKS) is None
    assert made("qwen3-32b", 1, answer_tokens=[10**6]).at_once == 0


def test_an_unknown_card_or_precision_is_named() -> None:
    with pytest.raises(InstanceError, match=r"cluster\.gpus\.X.*memory_gbytes_per_s"):
        engine(TINY, WORK, H100, "X", 1, LINKS)
    assert {*get_args(EnginePrecision)} <= {*decoding.BYTES}
    told = yaml.safe_load(Path("instances/post_training/tiny.yaml").read_text())
    told["workload"]["generation"]["precision"] = "fp32"
    with pytest.raises(InstanceError, match=r'generation\.precision: found "fp32"'):
        hetopt.load(told)


@pytest.mark.parametrize(
    ("name", "precision", "told"),
    [
        ("H100", "bf16", None),
        ("H100", "fp16", None),
        ("H200", "bf16", "H200 in bf16"),
        ("A100", "bf16", "A100"),
        ("our own", "bf16", "our own"),
    ],
)
def test_engines_without_measured_rows_are_named(
    name: str, precision: str, told: str | None
) -> None:
    gpu = GpuType(peak_tflops=100, memory_gib=141 if name == "H200" else 80)
    assert decoding.not_calibrated(gpu, name, precision) == told


def test_seen_precisions_are_those_of_the_rows() -> None:
    """Of the rows that the tests have, each card in each precision is known."""
    for row in read(SERVED):
        gpu = GpuType(peak_tflops=1, memory_gib=80)
        assert decoding.not_calibrated(gpu, row.system, row.in_precision) is None


def test_errors_of_measured_rows_do_not_grow() -> None:
    found = hetopt.predict(SERVED)
    pairs = [*zip(found.runs, found.rows, strict=True)]
    errors = [abs(y.iteration_s / x.measured_s - 1) for x, y in pairs]
    assert median(errors) < 0.135
    inside = [y.low_s <= x.measured_s <= y.high_s for x, y in pairs]
    assert 0.7 < sum(inside) / len(inside) < 0.92
    assert found.summary["all"].median_error == pytest.approx(median(errors))


def test_rows_that_nothing_is_known_of_say_why_and_others_stay(tmp_path: Path) -> None:
    head = "model_path,system,backend,isl,osl,batch_size,tp_size,mode\n"
    rows = ("Qwen/Qwen3-8B,a100_sxm,vllm", "a/b,h200_sxm,vllm", "Qwen/Qwen3-8B,x,vllm")
    more = ("Qwen/Qwen3-8B,h200_sxm,mlc", "Qwen/Qwen3-8B,h200_sxm,sglang")
    text = head + "".join(f"{x},1000,100,8,2,agg\n" for x in (*rows, *more))
    told = document("predict", put(tmp_path / "rows.csv", text))
    assert told["not_calibrated_here"] == ["a100_sxm"]
    reasons = [row["not_modelled"] for row in told["rows"]]
    assert [reasons[0], reasons[4]] == [None, None]
    for reason, word in zip(reasons[1:4], ("'a/b'", "'x'", "'mlc'"), strict=True):
        assert word in reason
    wide = [told["rows"][x]["high_ms"] / told["rows"][x]["low_ms"] for x in (0, 4)]
    assert wide[0] > wide[1]


@pytest.mark.parametrize("cell", ["0", "many", "1e99", "nan", "-3", "", "9" * 400])
def test_a_cell_that_is_no_number_names_its_line_and_column(
    tmp_path: Path, cell: str
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(f"model_path,system,isl,osl,batch_size\na,b,8,{cell},1\n")
    answer = typed("predict", path)
    assert (answer.exit_code, "line 2.osl" in answer.output) == (2, True)
