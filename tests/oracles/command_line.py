"""Commands as they are typed, in this process or another, and what they answer."""

import json
import subprocess
from typing import Any

from typer.testing import CliRunner

from hetopt.cli import app


def typed(*words: object) -> Any:
    """What `hetopt` answers to these words, in this process."""
    return CliRunner().invoke(app, [*map(str, words)])


def said(*words: object) -> tuple[int, str, str]:
    """The exit code of `hetopt` with these words, and all that it writes."""
    answer = typed(*words)
    return answer.exit_code, answer.stdout, answer.stderr


def document(*words: object, code: int = 0) -> Any:
    """The document of `hetopt` with these words, which ends with this exit code."""
    told = typed(*words, "--json")
    assert told.exit_code == code, told.output
    return json.loads(told.stdout)


def ran(*words: object, **how: Any) -> "subprocess.CompletedProcess[str]":
    """A program with these words that has ended, however, and its text."""
    how = {"capture_output": True, "text": True, "check": False} | how
    return subprocess.run([*map(str, words)], **how)
