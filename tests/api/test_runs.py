"""What a run takes agrees with the judge's iteration, and says what is not known."""

from fractions import Fraction
from typing import Any

import pytest

import hetopt
from hetopt.errors import InstanceError

NAME = "tiny/two-nodes"


def priced(**fields: float) -> hetopt.Instance:
    """The instance with these figures at every type of GPU, and without the others."""
    instance = hetopt.load(NAME)
    cluster = instance.planned_cluster
    told: dict[str, Any] = {"usd_per_hour": None, "watts": None, **fields}
    gpus = {k: v.model_copy(update=told) for k, v in cluster.gpus.items()}
    return instance.model_copy(
        update={"cluster": cluster.model_copy(update={"gpus": gpus})}
    )


def test_a_run_is_iterations_of_the_judge() -> None:
    result = hetopt.plan(priced(usd_per_hour=2.0, watts=300.0), "megatron")
    work, cluster = result.data.workload, result.data.planned_cluster
    run = hetopt.run_of(result, tokens=10**9)
    each = work.global_batch * work.sequence_length
    assert (run.iterations - 1) * each < 10**9 <= run.iterations * each
    seconds = Fraction(run.iterations * result.objective, 10**6)
    assert run.seconds == pytest.approx(float(seconds))
    used = {g.partition(":")[0] for r in result.plan.replicas() for g in r.gpus}
    gpus = sum(node.count for node in cluster.nodes if node.name in used)
    assert (run.nodes, run.gpus) == (len(used), gpus)
    assert run.usd == pytest.approx(float(seconds / 3600 * 2 * gpus))
    assert run.kwh == pytest.approx(float(seconds / 3600 * gpus * 300 / 1000))
    assert run.missing == ()


def test_what_is_not_known_is_named_by_its_field() -> None:
    result = hetopt.plan(priced(), "megatron")
    run = hetopt.run_of(result, tokens="1M")
    assert (run.usd, run.kwh) == (None, None)
    gpus = result.data.planned_cluster.gpus
    fields = {f"cluster.gpus.{g}.{f}" for g in gpus for f in ("usd_per_hour", "watts")}
    assert set(run.missing) <= fields
    assert {name.rpartition(".")[2] for name in run.missing} == {
        "usd_per_hour",
        "watts",
    }


@pytest.mark.parametrize("tokens", ["15 TB/s", 0, "1.5"])
def test_a_length_that_is_none_is_refused(tokens: Any) -> None:
    result = hetopt.plan(NAME, "megatron")
    with pytest.raises(InstanceError, match="tokens"):
        hetopt.run_of(result, tokens=tokens)
