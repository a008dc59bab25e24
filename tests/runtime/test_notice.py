"""Notices that machines go: who tells of them, and when there is none."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from made_plans import made, pipeline, stage, with_settings

from hetopt.errors import Unsupported
from hetopt.runtime import notice, supervisor
from hetopt.runtime.jobs import Settings

AZURE = '{"DocumentIncarnation": 1, "Events": [%s]}'
LONG = 10**6
TWO = [pipeline(4, 2, stage(0, 2, (2, "a:0")), stage(2, 4, (2, "a:1")))]


class Answers(BaseHTTPRequestHandler):
    """A cloud's address: 404, or what the test says."""

    text: str | None = None

    def do_GET(self) -> None:
        told = type(self).text
        self.send_response(404 if told is None else 200)
        self.end_headers()
        self.wfile.write((told or "").encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/latest/meta-data/spot"
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        (None, False),
        ("", False),
        ("FALSE", False),
        ("TRUE", True),
        ('{"action": "terminate", "time": "2026-01-02T03:04:05Z"}', True),
        ("2026-01-02T03:04:05Z", True),
        (AZURE % "", False),
        (AZURE % '{"EventType": "Reboot"}', False),
        (AZURE % '{"EventType": "Reboot"}, {"EventType": "Preempt"}', True),
    ],
)
def test_an_address_tells_of_a_notice_as_each_cloud_does(
    text: str | None, tells: bool, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Answers, "text", text)
    assert notice._is_told(address) == tells


def test_an_address_that_does_not_answer_tells_of_nothing() -> None:
    assert not notice._is_told("http://127.0.0.1:1/")


def test_a_notice_needs_a_folder_for_the_states() -> None:
    with pytest.raises(Unsupported, match="give --checkpoint with it"):
        notice.check(Settings(steps=1, notice="gone"))


def test_a_file_has_the_run_save_and_end(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    gone = tmp_path / "gone"

    def leave(row: Any) -> None:
        if row["step"] == 2:
            gone.touch()

    settings = {"checkpoint": str(tmp_path / "states"), "notice": str(gone)}
    job = with_settings(made(TWO), every=LONG, steps=LONG, **settings)
    ran = supervisor.run(job, leave)
    assert ran.interrupted
    saved = supervisor.Saved.of(settings["checkpoint"])
    assert saved is not None
    assert saved.step == ran.steps[-1]["step"] >= 2
