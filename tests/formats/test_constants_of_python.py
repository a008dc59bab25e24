"""A Python configuration is read by its constants, and never run."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from hetopt.errors import InstanceError
from hetopt.formats.importing import constants


def read(text: str, function: str = "") -> dict[str, Any]:
    found, _, _ = constants.read(text, "run.py", function, is_run=bool)
    return found


RECIPE = """
import nowhere_to_be_found as run
SIXTEEN_K: int = 16 * 1024

def trainer(tensor: int = 4, stages: int = 4, *, nodes: int = 1, dtype=torch.bfloat16):
    strategy = run.Config(Megatron, tensor_parallel=tensor, stages=stages, dtype=dtype)
    return run.Config(Trainer, num_nodes=nodes, strategy=strategy)

def recipe(num_nodes: int = 2):
    made = run.Partial(
        pretrain,
        trainer=trainer(stages=2, nodes=num_nodes),
        data=run.Config(Mock, seq_length=SIXTEEN_K, batches={"micro": 1, "global": 64}),
        optim=adam(),
        unknown=open("/etc/passwd").read(),
    )
    made.model.layers = 32
    made.model.rate = -1e-4
    made["data"].workers = 8
    return made
"""


def test_functions_are_what_they_return_by_their_arguments() -> None:
    assert read(RECIPE) == {
        "trainer.tensor_parallel": 4,
        "trainer.stages": 2,
        "trainer.dtype": "torch.bfloat16",
        "trainer.num_nodes": 2,
        "data.seq_length": 16_384,
        "data.batches.micro": 1,
        "data.batches.global": 64,
        "data.class": "run.Config",
        "optim": "adam",
        "model.layers": 32,
        "model.rate": -1e-4,
        "data.workers": 8,
        "unknown": "read",
        "SIXTEEN_K": 16_384,
    } | {k: v for k, v in read(RECIPE).items() if k.startswith("trainer.class")}
    own = read(RECIPE, "trainer")
    assert (own["stages"], own["num_nodes"]) == (4, 1)


def test_functions_that_call_each_other_without_end_are_refused() -> None:
    twice = "".join(
        f"def f{i}():\n    return a(x=f{i + 1}(), y=f{i + 1}())\n" for i in range(40)
    )
    for text in (
        "def f():\n    return a(x=f(), y=1)\n",
        twice + "def f40(): return 1\n",
    ):
        with pytest.raises(InstanceError, match="call each other more than"):
            read(text)


@pytest.mark.parametrize(
    "text", ["def f(:\n", "x = " + "(" * 5000, "a" + ".b" * 10_000]
)
def test_what_is_no_python_is_refused(text: str) -> None:
    with pytest.raises(InstanceError):
        read(text)


def test_nothing_is_run(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = f"import pathlib\npathlib.Path({str(mark)!r}).touch()\nbatch = 1\n"
    assert read(text) == {"batch": 1}
    assert not mark.exists()


@pytest.mark.parametrize("seed", range(30))
def test_values_are_what_python_makes_of_them(seed: int) -> None:
    random = Random(seed)
    values = {
        f"v{i}": random.choice([1, 2.5, "text", True, None, [1, 2], -3])
        for i in range(8)
    }
    sums = {"s": "v * 3 + 4 // 2", "p": "2 * (3 + v)"}
    text = "v = 7\n" + "".join(f"{k} = {v!r}\n" for k, v in values.items())
    text += "".join(f"{k} = {v}\n" for k, v in sums.items())
    own: dict[str, Any] = {}
    exec(text, {}, own)  # of the test's own text
    assert read(text) == own
