"""Generated data by name: reproducible, of the size asked for, plannable."""

import pytest

from hetopt import files, problems
from hetopt.errors import UnknownName
from hetopt.files.clusters import FAMILIES
from hetopt.files.generated import OTHERS

CLUSTERS = ("equal", "unequal", "islands", "tight_memory", "steep")


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
@pytest.mark.parametrize("size", [6, 64, 300])
def test_equal_names_give_equal_data_and_another_seed_other(
    family: str, size: int
) -> None:
    problem, data = files.load_problem(f"generated:{family}/{size}/3")
    again, same = files.load_problem(f"generated:{family}/{size}/3")
    assert (problem, data.digest) == (again, same.digest)
    assert files.load_problem(f"generated:{family}/{size}/4")[1].digest != data.digest
    record = problems.get(problem).Data
    assert record.model_validate_json(data.model_dump_json()).digest == data.digest


@pytest.mark.parametrize("family", CLUSTERS)
@pytest.mark.parametrize("size", [2, 3, 7, 16, 100, 10_000])
def test_a_number_is_the_number_of_gpus(family: str, size: int) -> None:
    cluster = files.load_instance(f"generated:{family}/{size}/0").planned_cluster
    assert cluster.gpu_count == size
    assert len(cluster.nodes) > 1


@pytest.mark.parametrize("size", [24, 64, 10_000])
def test_many_offers_are_many_and_their_quotas_add_up(size: int) -> None:
    for seed in range(5):
        offers = files.load_instance(f"generated:many_offers/{size}/{seed}").offers
        assert 12 <= len(offers) <= 24
        assert sum(offer.quota for offer in offers) == size
        assert len({offer.gpu for offer in offers}) == len(offers)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("generated:islands/64", "FAMILY/SIZE/SEED"),
        ("generated:island/64/7", "unknown family of generated instances 'island'"),
        ("generated:islands/1/7", "unknown size '1'"),
        ("generated:islands/10001/7", "from 2 to 10000"),
        ("generated:queue/tiny/7", "a whole number from 1 to 10000"),
        ("generated:islands/64/-7", "unknown seed '-7'"),
        ("generated:islands/64/²", "unknown seed"),
        ("generated:islands/²²/1", "unknown size"),
    ],
)
def test_a_name_of_another_form_says_what_is_expected(name: str, message: str) -> None:
    with pytest.raises(UnknownName, match=message):
        files.load_instance(name)
