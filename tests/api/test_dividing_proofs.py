"""One certificate of all ways to divide, in the order in which a check wants them."""

from itertools import product

from hetopt.api import dividing
from hetopt.solving.certificates import Case, TrainingCertificate


def proof(zero: int, way: int) -> TrainingCertificate:
    """A certificate that tells by its time what it is of."""
    cases = (Case(prices=(0.0,)),)
    return TrainingCertificate(time_us=10 * zero + way, most_sync_us=1, cases=cases)


def test_ways_stand_within_stages_of_zero() -> None:
    ways = [
        proof(0, way).model_copy(update={"further": (proof(1, way),)})
        for way in range(3)
    ]
    whole = dividing._joined(ways)
    assert whole is not None
    found = [one.time_us for one in (whole, *whole.further)]
    assert found == [10 * zero + way for zero, way in product(range(2), range(3))]
    assert not any(one.further for one in whole.further)


def test_a_way_without_a_proof_leaves_none() -> None:
    assert dividing._joined([proof(0, 0), None]) is None
