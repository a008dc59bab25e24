"""The command, as people start it: an address, a plan that is watched, and the end."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import typed

from hetopt import serving
from hetopt.errors import Unsupported

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")
httpx = pytest.importorskip("httpx")

LARGE = "hexiscale/setting-1-llama2-7b"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[str, Any]]:
    """The address of a server with an instance, and its process."""
    words = [sys.executable, "-m", "hetopt", "serve", LARGE, "--json"]
    process = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    text = ""
    while "}" not in text:
        line = process.stdout.readline()
        assert line, process.communicate()
        text += line
    try:
        yield json.loads(text)["address"], process
    finally:
        process.kill()
        process.communicate()


def children(process: Any) -> list[int]:
    """Processes that a process has started, where the system tells."""
    path = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(word) for word in path.read_text().split()] if path.exists() else []


def heard(client: Any, job: str) -> Iterator[dict[str, Any]]:
    """Events of a job to its end, as they come."""
    seen, ended = 0, False
    while not ended:
        told = client.get(f"api/jobs/{job}", params={"after": seen}).json()
        seen, ended = seen + len(told["events"]), told["ended"]
        yield from told["events"]
        time.sleep(0.05)


def test_a_plan_is_watched_stopped_and_the_server_ends_cleanly(served: Any) -> None:
    address, process = served
    assert address.startswith("http://127.0.0.1:")
    with httpx.Client(base_url=address, timeout=60) as client:
        state = client.get("api/state").json()
        order = {"instance": state["instance"]["digest"], "time_limit": 600}
        job = client.post("api/jobs", json=order).json()["job"]
        for event in heard(client, job):
            if event.get("incumbent") is not None:  # there is a plan to keep
                client.post(f"api/jobs/{job}/stop")
            last = event
        assert (last["kind"], last["stop"]) == ("done", "interrupted")
        assert last["board"]["objective_us"] == last["objective"]
        state = client.get("api/state").json()
        assert (state["job"], state["board"]["id"]) == (job, last["board"]["id"])
        # Another one is in the making when Ctrl-C comes.
        job = client.post("api/jobs", json=order).json()["job"]
        next(heard(client, job))
        left = children(process)
        process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in told
    assert not any(Path(f"/proc/{number}").exists() for number in left)


def test_a_port_that_is_taken_is_refused_with_a_remedy() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(Unsupported, match=f"--port {port}: cannot be served"):
            serving.serve(port=port)


def test_an_extra_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    told = typed("serve")
    assert told.exit_code == 2
    assert "pip install starlette uvicorn" in told.stderr
