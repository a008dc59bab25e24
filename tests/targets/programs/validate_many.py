"""Megatron-LM's own parser and rules on many runs: why each would not start.

`runs.json` lists them, each with its number of ranks; None for one that starts.
"""

import contextlib
import json
import sys
from pathlib import Path

import megatron_core


def why_not(words, world):
    """What ends a run before it trains, if anything."""
    try:
        made = megatron_core.validated([*words, "--no-rope-fusion"], world)
        from megatron.training.arguments import core_transformer_config_from_args

        core_transformer_config_from_args(made)
    except (AssertionError, ValueError, RuntimeError, SystemExit, KeyError) as error:
        return f"{type(error).__name__}: {error}"
    return None


with contextlib.redirect_stdout(sys.stderr):
    found = [why_not(*one) for one in json.loads(Path("runs.json").read_text())]
sys.stdout.write(json.dumps(found) + "\n")
