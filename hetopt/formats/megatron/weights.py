"""Hugging Face weights as a checkpoint that any layout of Megatron-LM loads."""

import shlex

SCRIPT, FOLDER = "weights.sh", "weights"
ARGUMENTS = [
    f"--load {FOLDER}",
    "--ckpt-format torch_dist",
    "--finetune",
    "--no-load-optim",
    "--no-load-rng",
]
_TEXT = """\
#!/usr/bin/env bash
# Convert Hugging Face weights, once, to a folder that all hosts see: the converter is
# Megatron-Bridge's (pip install megatron-bridge). The checkpoint is distributed: any
# tensor and pipeline parallelism loads it.
set -euo pipefail
cd "$(dirname "$0")"
python3 -c 'import sys
from megatron.bridge import AutoBridge
AutoBridge.import_ckpt(*sys.argv[1:])' {model} {folder}
"""


def script(folder: str) -> str:
    """Return a script that converts the weights of a folder."""
    return _TEXT.format(model=shlex.quote(folder), folder=FOLDER)
