"""A card's own constants, among those that are shipped."""

from pathlib import Path
from typing import Any

import pytest

import hetopt
from hetopt.costs.constants import Constant, Table, plain, shipped
from hetopt.costs.constants.files import write_constants
from hetopt.costs.formulas import kernels
from hetopt.costs.formulas.architecture import Matrix
from hetopt.costs.runs.description import described
from hetopt.costs.runs.rows import Run

ROW: dict[str, Any] = {
    "layers": 32, "hidden": 4096, "heads": 32, "vocabulary": 32000, "seq": 4096,
    "intermediate": 14336, "gated": True, "gpus": 8, "dp": 8, "tp": 1, "pp": 1,
    "mbs": 1, "gbs": 64, "precision": "bf16",
}  # fmt: skip
CARD = "H100-80GB-SXM5"
OWN = f"product.bf16@{CARD}"
RUNS = [Run.model_validate({**ROW, "gpu": gpu}) for gpu in (CARD, "A100-80GB-SXM4")]


def seconds(constants: Path | None) -> list[float]:
    found = [row.iteration_s for row in hetopt.predict(RUNS, constants=constants).rows]
    assert None not in found
    return [s for s in found if s is not None]


def test_a_file_of_a_card_is_of_that_card_alone(tmp_path: Path) -> None:
    write_constants(tmp_path / "c.json", {OWN: Constant(0.8, 0.03)})
    usual, slower = seconds(None), seconds(tmp_path / "c.json")
    assert slower[0] > 1.1 * usual[0]
    assert slower[1] == pytest.approx(usual[1])


#: Shares of the sheet's 2250 TFLOP/s that SimuMax measured on a B200 (4dcaae5,
#: configs/system/b200_bf16_ceperm.json), of a product's three passes together: tokens,
#: inputs and outputs.
ON_A_B200 = {
    (4096, 16384, 20480): 0.498, (4096, 16384, 16384): 0.491,
    (4096, 16384, 106496): 0.487, (4096, 53248, 16384): 0.487,
    (4096, 8192, 57344): 0.474, (4096, 28672, 8192): 0.473,
}  # fmt: skip


@pytest.mark.parametrize("shape", ON_A_B200)
def test_large_products_in_16_bits_are_as_slow_as_on_a_b200(
    shape: tuple[int, int, int],
) -> None:
    tokens, k, n = shape
    card = described(Run.model_validate({**ROW, "gpu": "b200"})).machine
    table = Table(plain(shipped.constants()))
    s = kernels.product_s(table, card, "bf16", tokens, Matrix(n, k))
    share = 2 * tokens * n * k / (s * 2250e12)
    assert share == pytest.approx(ON_A_B200[shape], rel=0.12)
