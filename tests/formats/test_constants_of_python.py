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

def recipe(tensor: int = 4, *, nodes: int = 2, dtype=torch.bfloat16):
    made = run.Partial(
        pretrain,
        trainer=run.Config(Trainer, tensor_parallel=tensor, dtype=dtype, nodes=nodes),
        data=run.Config(Mock, seq_length=SIXTEEN_K, batches={"micro": 1, "global": 64}),
        optim=adam(),
        unknown=open("/etc/passwd").read(),
    )
    made.model.layers = 32
    made.model.rate = -1e-4
    made["data"].workers = 8
    return made
"""


def test_functions_are_what_they_return_by_the_defaults_of_their_arguments() -> None:
    assert read(RECIPE) == {
        "trainer.tensor_parallel": 4,
        "trainer.dtype": "torch.bfloat16",
        "trainer.nodes": 2,
        "trainer.class": "run.Config",
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
    }


def test_a_function_whose_settings_another_has_is_refused() -> None:
    text = "def a():\n    return C(x=1)\n\ndef b():\n    return D(c=a(), y=2)\n"
    assert read(text, "a") == {"x": 1}
    with pytest.raises(InstanceError, match="found a call of a"):
        read(text, "b")


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
