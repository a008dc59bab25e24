"""A queue on a Slurm of files, and jobs of tiny models."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from disk import put
from stub_slurm import StubSlurm

from hetopt.queueing.jobs import TrainingJob
from hetopt.queueing.scheduler import Queue, Settings
from hetopt.queueing.store import Store

OPTIONS = ("types=a100:A100-80GB-SXM4,l40s:L40S", "inter_gbytes_per_s=3")
TINY = {
    **{"model_type": "llama", "architectures": ["LlamaForCausalLM"]},
    **{"num_hidden_layers": 6, "hidden_size": 64, "intermediate_size": 128},
    **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 256},
    **{"max_position_embeddings": 128, "rms_norm_eps": 1e-5, "hidden_act": "silu"},
}
NODES = {"nfast": ("a100", 4), "nold1": ("l40s", 2), "nold2": ("l40s", 2)}


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StubSlurm:
    """A Slurm of three nodes, whose commands come first in the path."""
    made = StubSlurm.made(tmp_path / "slurm", NODES)
    path = f"{made.place}{os.pathsep}{os.environ['PATH']}"
    monkeypatch.setenv("PATH", path)
    return made


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a tiny model."""
    return put(tmp_path / "tiny.json", TINY)


@pytest.fixture
def job(config: Path) -> Callable[..., TrainingJob]:
    """Jobs of that model."""

    def made(name: str = "a", **fields: Any) -> TrainingJob:
        usual = {"model": str(config), "global_batch": 8, "sequence_length": 32}
        return TrainingJob(name=name, **{**usual, "steps": 20, **fields})

    return made


@pytest.fixture
def queue(slurm: StubSlurm, tmp_path: Path) -> Callable[[], Queue]:
    """The queue, each time by a process that knows nothing yet.

    Its policy gives a job the GPUs that are used best, the fewest as a rule.
    """
    store = Store.made(tmp_path / "queue")
    store.set("settings", Settings("slurm", OPTIONS, "frenzy")._asdict())
    return lambda: Queue.opened(store.folder)
