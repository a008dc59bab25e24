"""Sailor's measured runs as ours."""

import json
from pathlib import Path
from typing import Any

import pytest
from reading_logs import one, put, told

from hetopt.errors import InstanceError
from hetopt.formats.runs import read

SAILOR = {
    "source_file": "N8/plan.json",
    "mbs": 8,
    "gbs": 512,
    "pp": 2,
    "dp": [4, 4],
    "tp": [4],
    "n_nodes": 8,
    "seq": 2048,
    "precision": "fp32",
    "optimizer": "Adam(W), ZeRO off",
    "measured_iteration_time_s": 2.25,
    "measured_max_mem_bytes_per_gpu": 2**34,
    "stage_layers": [12, 14],
}
SAILOR_MODEL = {"name": "OPT", "hidden": 1024, "heads": 16, "blocks": 24}


def test_sailors_runs_are_ours_with_one_degree_for_all_stages(tmp_path: Path) -> None:
    text = json.dumps({"model": SAILOR_MODEL, "runs": [SAILOR]})
    run = one(put(tmp_path, "s.json", text), gpu="GH200")
    told(run, {"gpus": 32, "dp": 4, "tp": 4, "pp": 2, "ga": 16, "zero": 0})
    told(run, {"stage_layers": (11, 13), "layers": 24, "gpu": "GH200"})
    assert run.measured_s == pytest.approx(2.25)
    assert run.measured_gib == pytest.approx(16)


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"dp": [4, 2]}, r"runs\[1\] \(N8/plan.json\): dp: found 4, 2, expected the s"),
        ({"tp": [4, 2]}, r"runs\[1\] \(N8/plan.json\): tp: found 4, 2"),
        ({"gbs": 500}, r"runs\[1\] .*: gbs: found 500, expected a multiple"),
        ({"stage_layers": [12, 13]}, r"runs\[1\] .*: stage_layers: found 25 layers"),
        ({"mbs": 0}, r"runs\[1\].mbs: found 0, expected"),
    ],
)
def test_a_run_of_sailor_that_has_no_form_of_ours_is_named(
    tmp_path: Path, changes: dict[str, Any], place: str
) -> None:
    text = json.dumps({"model": SAILOR_MODEL, "runs": [SAILOR, SAILOR | changes]})
    with pytest.raises(InstanceError, match=place):
        read(put(tmp_path, "s.json", text))
