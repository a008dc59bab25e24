"""The page's queue: what `hetopt status` says of it, and the plans of its jobs."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import hetopt.serving
from hetopt import cli
from hetopt.queueing.jobs import TrainingJob
from hetopt.queueing.scheduler import Queue, Settings
from hetopt.queueing.store import RUNNING, Attempt, Store

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from hetopt.serving import guard
from hetopt.serving.app import application
from hetopt.serving.desk import Desk

PLAN = {"plan": {"pipelines": []}}


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    """A queue with a job that runs and one that waits."""
    store = Store.made(tmp_path / "queue")
    store.set("settings", Settings("local")._asdict())
    fields = {"model": "gpt2", "global_batch": 8, "sequence_length": 32, "steps": 20}
    runs, waits = (
        store.add(TrainingJob(name=name, **fields))  # type: ignore[arg-type]
        for name in ("runs", "waits")
    )
    store.update(runs, state=RUNNING, start_s=100.0, end_s=4e9)
    store.update(waits, why="all GPUs are held")
    attempt = Attempt(
        job=runs.number,
        number=1,
        key="k",
        nodes={"a": 2},
        degrees=(2, 1),
        why="2 GPUs of a are used best",
        from_step=0,
        created=100.0,
    )
    store.keep(attempt)
    store.files(attempt).mkdir(parents=True)
    (store.files(attempt) / "plan.json").write_text(json.dumps(PLAN))
    return Queue.opened(store.folder)


def served(queue: Queue | None) -> TestClient:
    server = guard.Guard(application(Desk(5), queue), "token")
    return TestClient(server, base_url="http://127.0.0.1:8000/token/")


@pytest.fixture
def client(queue: Queue) -> Iterator[TestClient]:
    with served(queue) as made:
        yield made


def test_the_page_knows_of_the_queue_what_status_says(
    client: TestClient, queue: Queue
) -> None:
    found = client.get("api/queue").json()
    words = ["status", "--queue", str(queue.store.folder), "--json"]
    ended = CliRunner().invoke(cli.app, words)
    said = json.loads(ended.stdout)
    assert {name: said[name] for name in found} == found
    runs, waits = found["jobs"]
    assert (runs["state"], runs["attempts"][0]["nodes"]) == ("running", {"a": 2})
    assert waits["why"] == "all GPUs are held"


def test_a_job_s_plan_is_a_file_to_keep(client: TestClient) -> None:
    assert client.get("api/queue/1/plan.json").json() == PLAN
    assert client.get("api/queue/2/plan.json").status_code == 404
    assert client.get("api/queue/3/plan.json").status_code == 400
    assert client.get("api/queue/x/plan.json").status_code == 404


def test_without_a_queue_the_page_shows_none(tmp_path: Path) -> None:
    with served(None) as client:
        assert client.get("api/queue").json() is None
        assert client.get("api/queue/1/plan.json").status_code == 404
        assert "static/queue.js" not in client.get("").text
        assert client.get("static/queue.js").status_code == 200
    ended = CliRunner().invoke(cli.app, ["serve", "--queue", str(tmp_path)])
    assert ended.exit_code == 2


NODE = shutil.which("node")
ASK = """\
globalThis.fetch = async () => new Response("null", { status: 200 });
const { get } = await import("./asking.mjs");
console.log(JSON.stringify(await get("api/queue")));
"""


@pytest.mark.skipif(NODE is None, reason="no node, which runs the page's modules")
def test_without_a_queue_the_page_takes_null_for_an_answer(tmp_path: Path) -> None:
    assert NODE is not None
    module = Path(hetopt.serving.__file__).parent / "static" / "asking.js"
    shutil.copy(module, tmp_path / "asking.mjs")
    (tmp_path / "ask.mjs").write_text(ASK)
    ran = subprocess.run(
        [NODE, "ask.mjs"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "null\n", "")
