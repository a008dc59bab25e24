"""Exports held to the real tools: `pytest -m targets`, nothing is installed.

Checkouts are named by the environment: a test whose checkout is not told is skipped.
`tool` says whose exports a test is about, and `note` what it saw: both are properties
of the test in `--junitxml`.
"""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib import util
from pathlib import Path
from typing import Any

import pytest
from command_line import ran

PROGRAMS = Path(__file__).resolve().parent / "programs"
# What ssh starts on another host is started here.
SSH = """\
#!/usr/bin/env bash
while [ "$1" = -ntt ] || [ "$1" = -- ]; do shift; done
shift
exec bash -c "$*"
"""
# What each part of a run would be started with, in place of the start.
RECORD = """\
#!/usr/bin/env bash
{ printf '%s\\n' "$@"; echo; } > "$0.$$"
"""


def need(*modules: str) -> None:
    """Skip a test where one of the modules is not installed."""
    for module in modules:
        try:
            found = util.find_spec(module)
        except ModuleNotFoundError:  # nor what it is a part of
            found = None
        if found is None:
            pytest.skip(f"{module} is not installed")


def pytest_configure(config: pytest.Config) -> None:
    """The marker of whose exports a test is about."""
    config.addinivalue_line("markers", "tool(*targets): whose exports are held")


@pytest.fixture(autouse=True)
def _told_of_the_test(
    request: pytest.FixtureRequest, record_property: Callable[[str, object], None]
) -> None:
    """Its targets, and its name without parameters."""
    marker = request.node.get_closest_marker("tool")
    given = getattr(request.node, "callspec", None)
    named = given.params.get("target") if given else None
    for target in (named,) if named else (marker.args if marker else ()):
        record_property("target", target)
    record_property("test", request.node.originalname)


@pytest.fixture
def note(record_property: Callable[[str, object], None]) -> Callable[[object], None]:
    """Keep a line of what was seen."""
    return lambda line: record_property("note", str(line))


@pytest.fixture
def checkout() -> Callable[[str], Path]:
    """The folder that a variable of the environment names."""

    def named(variable: str) -> Path:
        if not (folder := os.environ.get(variable)):
            pytest.skip(f"{variable} names no checkout")
        return Path(folder).resolve()

    return named


@pytest.fixture
def told(tmp_path: Path) -> Callable[..., Any]:
    """Run a program of this folder by the tools; the last line that it prints."""

    def run(
        program: str, needs: str, *words: str, folder: Path = tmp_path, **env: str
    ) -> Any:
        need(*needs.split())
        path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
        ended = ran(
            *(sys.executable, PROGRAMS / program, *words),
            cwd=folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), **env},
            timeout=600,
        )
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-6000:]
        return json.loads(ended.stdout.splitlines()[-1])

    return run


@pytest.fixture
def launched(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run an exported `launch.sh`; all hosts are this machine.

    `stand_ins` are scripts in the place of commands, by name.
    """

    def run(
        folder: Path, *words: str, stand_ins: dict[str, str] | None = None, **env: str
    ) -> "subprocess.CompletedProcess[str]":
        programs = tmp_path / "bin"
        programs.mkdir(exist_ok=True)
        python = f'#!/bin/sh\nexec {sys.executable} "$@"\n'
        torchrun = python.replace(' "', ' -m torch.distributed.run "')
        found = {"ssh": SSH, "python3": python, "torchrun": torchrun}
        found |= stand_ins or {}
        for name, text in found.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        return ran(
            *("bash", folder / "launch.sh", *words),
            cwd=folder,
            env={
                **os.environ,
                "OMP_NUM_THREADS": "1",
                "PORT": port,
                **env,
                "PATH": path,
            },
            timeout=400,
        )

    return run


@pytest.fixture
def started(
    launched: Callable[..., "subprocess.CompletedProcess[str]"], tmp_path: Path
) -> Callable[..., list[list[str]]]:
    """The words of every `torchrun` that an exported `launch.sh` would start."""

    def words(folder: Path, *more: str, **env: str) -> list[list[str]]:
        ended = launched(folder, *more, stand_ins={"torchrun": RECORD}, **env)
        assert ended.returncode == 0, ended.stderr[-4000:]
        found = [
            path.read_text().splitlines()[:-1]
            for path in (tmp_path / "bin").glob("torchrun.*")
        ]
        return sorted(found, key=lambda one: int(one[one.index("--node-rank") + 1]))

    return words
