"""The same sweep on a Dask cluster, one of whose workers is killed in the middle."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from test_bench import group, rows_of, suite

from hetopt.bench import running

distributed = pytest.importorskip("distributed", reason="needs hetopt[dask]")


@pytest.mark.slow
def test_a_worker_that_is_killed_costs_no_row(tmp_path: Path) -> None:
    instances = ["tiny/two-nodes", "tiny/islands", "generated:unequal/6/0..3"]
    file = suite(tmp_path / "s.toml", group(instances, ["megatron", "autohet"]))
    mine = running.Chosen("mine", file)
    running.go(mine, tmp_path / "here")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        killed: list[int] = []

        def told(row: Any, left: int) -> None:
            if row is not None and not killed:
                killed.append(next(iter(client.run(os.getpid).values())))
                os.kill(killed[0], signal.SIGKILL)

        address = cluster.scheduler_address
        running.go(mine, tmp_path / "there", dask=address, told=told)
    assert killed
    assert rows_of(tmp_path / "there") == rows_of(tmp_path / "here")
