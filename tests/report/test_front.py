"""Cost against time: the page of a front."""

from flat import flat

import hetopt
from hetopt import api
from hetopt.report import front, writers


def test_a_front_says_which_settings_its_plans_chose() -> None:
    plain = flat(hetopt.load("tiny/offers"), exclude_unset=True)
    costs = plain["workload"]["costs"]
    plain["requirements"] = {}
    chosen = {**plain, "workload": dict(plain["workload"])}
    chosen["workload"]["costs"] = {**costs, "activations": "standard", "zero": 1}
    chosen["workload"]["alternatives"] = {"recompute": ["none"], "zero": [0]}
    shown = {}
    for name, document in (("plain", plain), ("chosen", chosen)):
        found = api.frontier(document)
        assert found.points
        sheet = front.sheet(found)
        shown[name] = writers.records(sheet)
        assert ("settings" in writers.page(sheet)) is (name == "chosen")
    assert "recompute none" in shown["chosen"]
    assert "recompute" not in shown["plain"]
