"""The constants that are shipped: positive, known to some degree, and said why."""

import pytest

from hetopt.costs.constants import shipped


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
    plain = shipped.spread(experts=False, scores=False)
    sparse = shipped.spread(experts=True, scores=False)
    assert 0 < plain < sparse < shipped.spread(experts=True, scores=True)
    assert plain == pytest.approx(shipped.noise().dense)
