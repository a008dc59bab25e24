"""Every target says which releases it was held against, and what is installed."""

from exporter_plans import EVEN, instance

from hetopt.formats import exporting

HELD = {name: exporting.target_named(name).held for name in exporting.names()}


def test_explain_tells_the_releases() -> None:
    rows = {row["name"]: row for row in exporting.explain(instance(), EVEN)}
    assert rows["torchtitan"]["held_against"] == list(HELD["torchtitan"].held)
    assert rows["torchtitan"]["oldest"] == "0.2.2"
