"""What a tool that trains only on CUDA says here, started as its export starts it."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import lack_of_gpus
from exporter_plans import one as pipelined
from model_configs import LLAMA_31, made_of

from hetopt.formats import exporting

pytestmark = pytest.mark.targets
LLAMA = {key: value for key, value in LLAMA_31.items() if key != "rope_scaling"}


@pytest.mark.tool("megatron")
def test_its_own_script_says_what_it_needs(
    launched: Callable[..., "subprocess.CompletedProcess[str]"],
    checkout: Callable[[str], Path],
    note: Callable[[object], None],
    tmp_path: Path,
) -> None:
    source = checkout("MEGATRON_LM")
    here = without_gpus()
    data = made_of(LLAMA)
    plan = here(pipelined([(12, 1, 1)]))
    text = data.model_dump_json().replace('"a0"', '"127.0.0.1"')
    data = type(data).model_validate_json(text)
    exporting.write(tmp_path / "run", exporting.export_plan("megatron", data, plan))
    words = "--data-path corpus --tokenizer-type NullTokenizer --train-iters 10"
    # Newer than this Python may be: the message is to be another one.
    (tmp_path / "sitecustomize.py").write_text(
        "import typing\ntyping.override = getattr(typing, 'override', lambda f: f)\n"
    )
    path = f"{source}{os.pathsep}{tmp_path}"
    env = {"PRETRAIN": str(source / "pretrain_gpt.py"), "PYTHONPATH": path}
    ended = launched(tmp_path / "run", *words.split(), **env)
    assert ended.returncode != 0
    note(lack_of_gpus(ended.stdout + ended.stderr))


def without_gpus() -> Callable[[Any], Any]:
    """Skip where there are GPUs; else what puts a plan's host on this machine."""
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("it has what it needs here")

    def here(plan: Any) -> Any:
        text = plan.model_dump_json().replace('"a0:', '"127.0.0.1:')
        return type(plan).model_validate_json(text)

    return here
