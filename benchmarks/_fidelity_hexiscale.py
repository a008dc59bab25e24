"""HexiScale's Table 3 and case study: what was run, beside the calibrated model.

Its "MFU" counts recomputation. Of its plans the paper prints one, that of setting 3.
Those of the other mixed settings are what its released planner finds (`peer_plans/`
of the data folder), those of the homogeneous ones our planner's.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _fidelity_opt import percent
from _hexiscale_units import calibrated

from hetopt import load
from hetopt.files import load_plan
from hetopt.planners import hexiscale
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance

LIBRARY = Path(__file__).parent.parent / "instances" / "hexiscale"
TABLE_3 = {  # "MFU", real and simulated, %
    "homogeneous-ethernet-llama2-7b": (41.1, 42.2),
    "homogeneous-rdma-llama2-7b": (53.7, 54.0),
    "setting-1-llama2-7b": (31.2, 32.3),
    "setting-2-llama2-7b": (33.5, 33.8),
    "homogeneous-ethernet-llama2-13b": (39.5, 41.0),
    "homogeneous-rdma-llama2-13b": (51.1, 52.2),
    "setting-1-llama2-13b": (27.2, 28.6),
    "setting-2-llama2-13b": (31.4, 31.8),
    "homogeneous-ethernet-llama-30b": (27.8, 28.6),
    "homogeneous-rdma-llama-30b": (39.0, 40.4),
    "setting-3-llama-30b": (27.5, 28.0),
}
PRINTED = {"setting-3-llama-30b": "table-2"}
CASE_STUDY = {"megatron": 41.52, "hexiscale": 25.55}  # s


def table_3(data: Path) -> Iterator[dict[str, Any]]:
    """HexiScale, Table 3: achieved "MFU" of 11 runs, by the calibrated model."""
    for name, (real, theirs) in TABLE_3.items():
        instance, plan, origin = _planned(name, data)
        found = training_plan.evaluate(calibrated(instance), plan)
        ours = 100 * float(found.parts["hfu"])
        yield {
            "setting": name,
            "plan": origin,
            "measured, %": real,
            "paper's simulation, %": theirs,
            "its error, %": percent(theirs, real),
            "closed form, %": ours,
            "error, %": percent(ours, real),
        }


def _planned(name: str, data: Path) -> tuple[Instance, TrainingPlan, str]:
    if name in PRINTED:
        _, instance, plan = load_plan(LIBRARY / f"{PRINTED[name]}.plan.json")
        return instance, plan, "the paper's"
    setting, _, size = name.rpartition("-")
    place = setting.removesuffix("-llama2").removesuffix("-llama")
    file = data / "peer_plans" / f"hexiscale_{place}_{size}.json"
    if file.is_file():
        _, instance, plan = load_plan(file)
        return instance, plan, "its released planner's"
    instance = load(f"hexiscale/{name}")
    return instance, hexiscale.plan(instance), "ours"


def case_study(data: Path) -> Iterator[dict[str, Any]]:
    """HexiScale, section 3: both plans of its case study, by the calibrated model."""
    for name, paper in CASE_STUDY.items():
        _, instance, plan = load_plan(LIBRARY / f"case-study-{name}.plan.json")
        found = training_plan.evaluate(instance, plan)
        seconds = float(found.parts["iteration_us"]) / 1e6
        yield {
            "plan": name,
            "paper, s": paper,
            "closed form, s": seconds,
            "error, %": percent(seconds, paper),
        }
