"""Examples of the papers' rules that are worked out by hand."""

from fractions import Fraction

import pytest
from small_instances import small

from hetopt.exact import device_grouping as exact
from hetopt.modelling import Limits
from hetopt.planners import autohet
from hetopt.planners.metis import cuts
from hetopt.planners.metis.costs import LineCost
from hetopt.planners.metis.intra import Intra
from hetopt.problems import device_grouping
from hetopt.schema import Instance


def devices(floor_gib: int, **counts: int) -> device_grouping.Data:
    """A100 and H800 of 80 GB, the H800 twice as strong; K = 16."""
    strength = {"A100": 312_000, "H800": 624_000}
    gpus = tuple(
        device_grouping.DeviceType(
            type=name, count=n, gflops=strength[name], memory_mib=81_920
        )
        for name, n in counts.items()
    )
    return device_grouping.Data(
        gpus=gpus, minimum_memory_mib=floor_gib * 1024, micro_batches=16
    )


@pytest.mark.parametrize(
    ("floor_gib", "groups", "worth"),
    [
        # {H800}, {A100, A100}: 2 min(624, 624 * 16 / 17); apart: 3 * 312 = 936 < 1175.
        (60, [["A100", "A100"], ["H800"]], Fraction(2 * 624_000 * 16, 17)),
        # No group of one holds 100 GiB, so all three are one: 1248 * 16 / 18.
        (100, [["A100", "A100", "H800"]], Fraction(1_248_000 * 16, 18)),
    ],
)
@pytest.mark.parametrize("by", ["method", "counts", "statement"])
def test_autohets_grouping_of_two_a100_and_an_h800(
    by: autohet.GroupingBy, floor_gib: int, groups: list[list[str]], worth: Fraction
) -> None:
    """Its Eq. 2 and 3."""
    data = devices(floor_gib, A100=2, H800=1)
    found = autohet.best_grouping(data, by, Limits())
    assert found.objective == worth
    assert found.plan is not None
    named = [
        sorted(name for name, n in group.gpus.items() for _ in range(n))
        for group in found.plan.groups
        for _ in range(group.copies)
    ]
    assert sorted(named) == groups


def test_autohets_fixed_k_prices_the_bubble_of_a_group() -> None:
    """K = 1: a group of P devices is worth the mean of them, so none is joined."""
    data = devices(60, A100=4).model_copy(update={"micro_batches": 1})
    assert exact.solve(data, limits=Limits()).objective == 4 * 312_000


def mixed(*tflops: float) -> Instance:
    """Nodes of one GPU of so many TFLOPS each."""
    return small(
        " ".join(f"G{i}*1" for i in range(len(tflops))),
        {f"G{i}": (peak, 80) for i, peak in enumerate(tflops)},
        model={"layers": 8},
        inter=10,
        sequence_length=1024,
        global_batch=16,
        micro_batch_sizes=[4, 8],
        costs={"head": "omit"},
    )


@pytest.mark.parametrize(
    ("tflops", "batch", "samples"),
    [((300, 100), 4, [3, 1]), ((250, 150), 8, [5, 3]), ((200, 200), 4, [2, 2])],
)
def test_metis_gives_replicas_samples_in_proportion_to_their_speed(
    tflops: tuple[float, float], batch: int, samples: list[int]
) -> None:
    """Its data load balancing, section 4.2."""
    intra = Intra(LineCost(mixed(*tflops)), layer_balancing=True, dp_first=True)
    row = intra.shares(batch, ((0, 1), (1, 1)), 1)
    assert [share.samples for share in row] == samples


@pytest.mark.parametrize(
    ("capacity", "most", "layers"),
    [([3, 1], [8, 8], [6, 2]), ([1, 1], [8, 8], [4, 4]), ([3, 1], [5, 8], [5, 3])],
)
def test_metis_gives_stages_layers_in_proportion_to_their_capacity(
    capacity: list[float], most: list[int], layers: list[int]
) -> None:
    """Its layer load balancing; what a stage does not hold goes to the other."""
    found = cuts.proportional([1] * 8, 0, capacity, most)
    assert found == [0, layers[0], 8]
