"""The page on the cost model: its example, and that it names what there is."""

import re
from fractions import Fraction
from math import ceil

import pytest
import yaml
from made_plans import pipeline, stage
from places import ROOT

import hetopt
from hetopt.costs import CostTable, Position
from hetopt.costs.constants import Table, shipped
from hetopt.costs.formulas.architecture import Matrix
from hetopt.costs.formulas.kernels import product_s
from hetopt.costs.formulas.machine import Machine
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance
from hetopt.schema.settings import GROUP_OF

ROOM = ROOT / "hetopt" / "costs"
PAGE = (ROOM / "README.md").read_text("utf-8")
EXAMPLE = PAGE.partition("## An example, by hand")[2].partition("\n## ")[0]


ROW = re.compile(
    r"^\| \**([^|*]+?)\**\s+\| ([^|]+?)\s+\| \**(\d+) (\w+)\**\s+\|$", re.M
)


def figures() -> dict[str, int]:
    """The figures of the example's table, in the units that are printed."""
    return {name: int(value) for name, _, value, _ in ROW.findall(EXAMPLE)}


def example() -> tuple[Instance, TrainingPlan]:
    block = re.search(r"```yaml\n(.*?)```", EXAMPLE, re.S)
    assert block
    instance = hetopt.load(yaml.safe_load(block[1]))
    pipelines = [
        pipeline(
            8,
            1,
            stage(0, 2, (1, f"{first}:0 {first}:1")),
            stage(2, 4, (1, f"{last}:0 {last}:1")),
        )
        for first, last in (("n0", "n1"), ("n2", "n3"))
    ]
    return instance, TrainingPlan.model_validate({"pipelines": pipelines}, strict=False)


def test_the_judge_says_what_the_page_computes_by_hand() -> None:
    instance, plan = example()
    said, judged = figures(), training_plan.evaluate(instance, plan)
    table = CostTable(instance)
    assert judged.violations == ()
    parts = judged.parts
    first, last = (table.stage_mib("n0", x, (2, 1), Position(8, 2, j), (2,) * 4)
                   for j, x in enumerate((range(2), range(2, 4))))  # fmt: skip
    stages = parts["stages"][0]
    holders = [("n0", 2), ("n2", 2)]
    ends = instance.model.embedding_parameters
    logits = last["ends"] - first["ends"]
    assert said == {
        "flops of a layer": table.hardware_flops[0] // 10**9,
        "compute": 2000,
        "ring": 50,
        "layer": table.layer_us("n0", 2, 1)[0],
        "head": table.head_us("n1", 2, 1),
        "hop": table.hop_us("n0", "n1", 2, 1),
        "first stage": stages[0]["compute_us"] + stages[0]["hop_us"],
        "last stage": stages[1]["compute_us"],
        "pipeline": parts["pipeline_us"][0],
        "gradients of a layer": table.layer_sync_us(0, holders),
        "gradients of an end": table.sync_us(ends, holders),
        "synchronisation": parts["sync_us"],
        "iteration": parts["iteration_us"],
        "states of a stage's layers": first["states"],
        "activations, first stage": first["activations"],
        "embedding": first["ends"],
        "memory, first stage": parts["peak_memory_mib"]["n0:0"],
        "activations, last stage": last["activations"],
        "logits": logits,
        "memory, last stage": parts["peak_memory_mib"]["n1:1"],
    }


def computed(formula: str) -> Fraction:
    """What a formula of the table comes to, in the units that it is written in."""
    text = re.sub(r"(\d+) us", r"\1e-6", formula.replace(" x ", "*"))
    text = re.sub(r"(\d) \(", r"\1*(", text.replace("^", "**"))
    text = re.sub(r"\b(\d+)e(-?\d+)", r"(\1*T**\2)", text)
    text = re.sub(r"(?<![*\w])(\d+)", r"F(\1)", text)
    return Fraction(eval(text, {"F": Fraction, "T": Fraction(10)}))


@pytest.mark.parametrize("row", ROW.findall(EXAMPLE), ids=lambda row: row[0])
def test_a_row_of_the_example_is_what_its_formula_comes_to(
    row: tuple[str, ...],
) -> None:
    _, formula, value, unit = row
    sums = unit == "us" and not re.search(r"us|e12", formula)
    sums |= unit == "MiB" and not re.search(r"[x/]", formula)
    scale = {
        "us": Fraction(10**6),
        "MiB": Fraction(1, 2**20),
        "GFLOP": Fraction(1, 10**9),
    }
    assert ceil(computed(formula) * (1 if sums else scale[unit])) == int(value)


def test_the_product_by_hand() -> None:
    constants = {"product.bf16": 0.8, "product.rows": 0.2, "product.depth": 0.5}
    machine = Machine("X", "Y", {"bf16": 1e15}, 2.5e12, 80, 8, 8, 1e11, 8, 1e10)
    matrix = Matrix(4000, 4000)
    seconds = product_s(Table(constants), machine, "bf16", 4000, matrix)
    assert seconds == pytest.approx(198.4e-6)
    assert "198.4 us" in PAGE


@pytest.mark.parametrize("field", sorted(GROUP_OF))
def test_every_cost_setting_is_on_the_page(field: str) -> None:
    assert re.search(rf"`{field}\b", PAGE)


@pytest.mark.parametrize(
    "name", sorted({name.partition("@")[0] for name in shipped.entries()})
)
def test_every_constant_is_on_the_page(name: str) -> None:
    assert f"`{name}`" in PAGE
