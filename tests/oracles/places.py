"""Where the tests, their inputs and the project's own files lie."""

from pathlib import Path

TESTS = Path(__file__).resolve().parent.parent
ROOT = TESTS.parent
INSTANCES = ROOT / "instances"
