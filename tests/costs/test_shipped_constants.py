"""The constants that are shipped: positive, known to some degree, and said why."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from disk import put

from hetopt.catalogue import find_gpu
from hetopt.costs.constants import shipped
from hetopt.costs.constants.files import read_file, write_constants
from hetopt.costs.formulas.frameworks import FRAMEWORKS
from hetopt.errors import InstanceError


def test_entries_say_value_spread_prior_and_why() -> None:
    for name, entry in shipped.entries().items():
        assert entry["value"] > 0, name
        assert entry["why"], name
        if "prior" in entry:
            assert entry["spread"] > 0, name
            middle, wide = entry["prior"]
            assert min(middle, wide) > 0, name


def test_deviations_have_what_they_deviate_from() -> None:
    names = shipped.values()
    alone = {"chip"}  # a card beside the others of its generation
    assert {name.partition("@")[0] for name in names} - alone <= set(names)


def test_runs_leave_less_doubt_than_there_was() -> None:
    before, after = shipped.priors(), shipped.constants()
    for name, prior in before.items():
        # values in the file have two digits
        assert after[name].spread <= prior.spread * 1.06, name


def test_surer_runs_have_a_narrower_interval() -> None:
    spread = partial(shipped.spread, lora=False)
    plain = spread(experts=False, scores=False, precision="bf16")
    sparse = spread(experts=True, scores=False, precision="fp8")
    assert 0 < plain < sparse < spread(experts=True, scores=True, precision="fp8")
    assert sparse < spread(experts=True, scores=False, precision="bf16")
    assert plain == pytest.approx(shipped.noise().dense)


def test_what_no_run_is_known_of_has_a_wider_interval() -> None:
    noise, card = shipped.noise(), "H100-80GB-SXM5"
    assert shipped.unseen(card, "torch") == 0
    assert shipped.unseen("H200-141GB-SXM5", "torch") == noise.system
    assert shipped.unseen("a card", "torch") == noise.card
    assert shipped.unseen(card, "torch", own=False) == noise.program
    assert shipped.unseen(card, "executor") == noise.program
    assert shipped.unseen(card, "a framework") == noise.framework
    both = math.hypot(noise.card, noise.framework)
    assert shipped.unseen("a card", "a framework") == pytest.approx(both)


def test_cards_that_were_seen_are_of_the_catalogue() -> None:
    for framework, cards in shipped.SEEN.items():
        assert framework in FRAMEWORKS
        for name in cards:
            card = find_gpu(name)
            assert card.name == name


# --- files -----------------------------------------------------------------------

ENTRY = {"value": 1.0, "spread": 0.1}
FILE: dict[str, Any] = {
    "hetopt": "constants",
    "version": 1,
    "constants": {"product.bf16@H100": ENTRY},
}


def test_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    path = tmp_path / "constants.json"
    write_constants(path, shipped.constants())
    assert read_file(path) == shipped.constants()


@pytest.mark.parametrize(
    ("change", "field", "message"),
    [
        ({"hetopt": "plan"}, "hetopt", "expected 'constants'"),
        ({"version": 2}, "version", "found 2, expected 1"),
        ({"given": {"x": 1.0}}, "given", "given"),
        ({"constants": {}}, "constants", "constants"),
        ({"constants": {"Product": ENTRY}}, None, "Product"),
        ({"constants": {"x": {**ENTRY, "value": 0}}}, "constants.x.value", "value"),
        ({"constants": {"x": {**ENTRY, "value": "1"}}}, "constants.x.value", "value"),
        ({"constants": {"x": {**ENTRY, "spread": -1}}}, "constants.x.spread", "-1"),
        ({"constants": {f"x{i}": ENTRY for i in range(1001)}}, "constants", "1001"),
    ],
)
def test_wrong_files_of_constants_are_refused(
    tmp_path: Path, change: dict[str, Any], field: str | None, message: str
) -> None:
    path = put(tmp_path / "constants.json", FILE | change)
    with pytest.raises(InstanceError, match=message) as told:
        read_file(path)
    assert told.value.file == str(path)
    assert field is None or told.value.field == field
