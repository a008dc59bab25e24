"""A card's own constants, among those that are shipped."""

import json
from pathlib import Path
from typing import Any

import pytest

import hetopt
from hetopt.costs.constants import shipped
from hetopt.costs.runs.rows import Run

ROW: dict[str, Any] = {
    "layers": 32,
    "hidden": 4096,
    "heads": 32,
    "vocabulary": 32000,
    "intermediate": 14336,
    "gated": True,
    "seq": 4096,
    "gpus": 8,
    "dp": 8,
    "tp": 1,
    "pp": 1,
    "mbs": 1,
    "gbs": 64,
    "precision": "bf16",
}
CARD = "H100-80GB-SXM5"
OWN = f"product.bf16@{CARD}"
RUNS = [Run.model_validate({**ROW, "gpu": gpu}) for gpu in (CARD, "A100-80GB-SXM4")]


def written(path: Path, value: float, given: dict[str, float]) -> Path:
    tree = {
        "hetopt": "constants",
        "version": 1,
        "card": CARD,
        "given": given,
        "constants": {OWN: {"value": value, "spread": 0.03}},
    }
    path.write_text(json.dumps(tree))
    return path


def seconds(constants: Path | None) -> list[float]:
    found = [row.iteration_s for row in hetopt.predict(RUNS, constants=constants).rows]
    assert None not in found
    return [s for s in found if s is not None]


def test_a_file_of_a_card_is_of_that_card_alone(tmp_path: Path) -> None:
    usual = seconds(None)
    slower = seconds(written(tmp_path / "c.json", 0.8, {}))
    assert slower[0] > 1.1 * usual[0]
    assert slower[1] == pytest.approx(usual[1])


def test_a_card_stays_as_fast_where_what_it_was_fitted_with_has_changed(
    tmp_path: Path,
) -> None:
    """Half the common share then, twice the card's deviation: the same product."""
    now = {
        name: shipped.constants()[name].value
        for name in ("product.bf16", "product.bf16@Hopper")
    }
    then = {**now, "product.bf16": now["product.bf16"] / 2}
    today = seconds(written(tmp_path / "now.json", 0.8, now))
    earlier = seconds(written(tmp_path / "then.json", 1.6, then))
    assert earlier == pytest.approx(today)
