"""The same seed gives the same plan, however the processor adds and rounds."""

import json
import os
import sys
from typing import Any

import numpy as np
import plans_by_name
import pytest
from command_line import ran


def _without_simd() -> dict[str, str]:
    """What switches off the vector instructions that numpy and libc choose from."""
    config: Any = np.show_config(mode="dicts")
    extensions = config["SIMD Extensions"].get("found", [])
    return {
        "NPY_DISABLE_CPU_FEATURES": " ".join(extensions),
        "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-FMA,-FMA_Usable",
        "OPENBLAS_CORETYPE": "Prescott",
    }


_PROCESSORS = {
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "without vectors": _without_simd(),
}


def _plans(processor: str) -> dict[str, str] | None:
    """Digests of plans by name; None where this machine lacks the instructions."""
    given = {"OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "GLIBC_TUNABLES"}
    kept = {name: value for name, value in os.environ.items() if name not in given}
    done = ran(
        sys.executable, plans_by_name.__file__, env=kept | _PROCESSORS[processor]
    )
    if done.returncode < 0:  # ended by a signal: an illegal instruction
        return None
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "processor",
    [
        "without vectors",
        *(pytest.param(x, marks=pytest.mark.slow) for x in ("Haswell", "SkylakeX")),
    ],
)
def test_plans_of_every_method_are_the_same_on_another_processor(
    processor: str,
) -> None:
    other = _plans(processor)
    if other is None:
        pytest.skip(f"this machine cannot run the kernels of {processor}")
    here = plans_by_name.digests()
    assert len(here) > 30
    assert other == here
