"""The page's server: what it answers, to whom, and what it refuses, and how."""

import json
import time
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from command_line import typed
from places import ROOT

import hetopt
from hetopt.files import load_instance

pytest.importorskip("starlette")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from hetopt.serving import app, desk
from hetopt.serving.app import STATIC, application
from hetopt.serving.desk import Desk
from hetopt.serving.job import Teller, answered

TINY = "tiny/two-nodes"
MOST_OF_PAGE = 500_000  # bytes
ERROR = {"kind", "message", "field"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with served(Desk(5)) as made:
        yield made


def served(desk: Desk, **words: Any) -> TestClient:
    server = application(desk, "token")
    return TestClient(server, base_url="http://127.0.0.1:8000/token/", **words)


def asked(client: TestClient, path: str, body: Any) -> dict[str, Any]:
    told = client.post(path, json=body)
    assert told.status_code == 200, told.text
    return told.json()


def refused(told: Any, status: int) -> dict[str, Any]:
    """The error of an answer, whole: in JSON, with all of its parts."""
    assert told.status_code == status
    error: dict[str, Any] = told.json()["error"]
    assert set(error) == ERROR
    assert error["message"]
    return error


def tiny(client: TestClient) -> dict[str, Any]:
    return asked(client, "api/instances/named", {"name": TINY})


def events(client: TestClient, job: str) -> list[dict[str, Any]]:
    """All events of a job, heard to the end."""
    seen: list[dict[str, Any]] = []
    ended = False
    while not ended:
        told = client.get(f"api/jobs/{job}", params={"after": len(seen)}).json()
        seen, ended = seen + told["events"], told["ended"]
        time.sleep(0.02)
    return seen


@pytest.fixture(scope="module")
def planned(client: TestClient) -> dict[str, Any]:
    """The last event of a plan of the tiny instance."""
    digest = tiny(client)["digest"]
    order = {"instance": digest, "time_limit": 5}
    told = client.post("api/jobs", json=order)
    assert told.status_code == 200
    refused(client.post("api/jobs", json=order), 409)
    seen = events(client, told.json()["job"])
    assert {"began", "state"} <= {event["kind"] for event in seen}
    return seen[-1]


# --- who may ask -------------------------------------------------------------------


def test_the_page_is_whole_small_and_asks_nobody_else(client: TestClient) -> None:
    told = client.get("http://127.0.0.1/token/")
    assert told.status_code == 200
    assert told.headers["content-security-policy"].startswith("default-src 'self';")
    texts = {path.name: path.read_text(encoding="utf-8") for path in STATIC.iterdir()}
    assert sum(map(len, texts.values())) < MOST_OF_PAGE
    assert all(f"static/{name}" in told.text for name in ("main.js", "style.css"))
    for name, text in texts.items():
        served = client.get(f"static/{name}")
        assert served.status_code == 200
        assert served.text == text
        beyond = text.replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in beyond
        assert "https://" not in beyond
        assert "innerHTML" not in text


@pytest.mark.parametrize("path", ["/", "/tokem/", "/tokem/api/library", "/token2/"])
def test_nothing_is_told_without_the_token(client: TestClient, path: str) -> None:
    refused(client.get(f"http://127.0.0.1{path}"), 404)
    assert client.get("http://127.0.0.1/token").status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((host, 200) for host in ("127.0.0.1:1", "localhost")),
        *((host, 400) for host in ("evil.example", "10.0.0.1", "127.0.0.1.evil.io")),
        *((host, 400) for host in ("", "[::1]evil.com")),
    ],
)
def test_names_of_others_are_refused(
    client: TestClient, host: str, status: int
) -> None:
    assert client.get("api/state", headers={"host": host}).status_code == status


def test_too_long_a_request_is_refused(client: TestClient) -> None:
    text = "x" * (app.MOST_BYTES + 1)
    refused(client.post("api/instances/file", content=text), 413)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("api/nothing", {}, 404),
        ("api/instances/named", "no JSON", 400),
        ("api/instances/named", [], 400),
        ("api/instances/named", {}, 400),
        ("api/instances/named", {"hue": 1}, 400),
        ("api/instances/named", {"name": "tiny/nothing"}, 400),
        ("api/instances/named", {"name": "tiny/offers"}, 400),
        ("api/instances/named", {"name": "/etc/passwd"}, 400),
        ("api/instances/file", {"name": "x.yaml", "text": "name: [1"}, 400),
        ("api/instances/file", {"name": "x.yaml", "text": "name: a\nhue: 3"}, 400),
        ("api/jobs", {"instance": "nothing", "time_limit": 1}, 404),
        ("api/jobs", {"instance": "nothing", "time_limit": 0}, 400),
        ("api/jobs/nothing/stop", {}, 404),
    ],
)
def test_what_is_wrong_is_a_document(
    client: TestClient, path: str, body: Any, status: int
) -> None:
    content = body if isinstance(body, str) else json.dumps(body)
    error = refused(client.post(path, content=content), status)
    assert "/tmp" not in error["message"]
    assert "Traceback" not in error["message"]


def test_a_bug_of_ours_is_a_document_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(app, "examples", broken)
    with served(Desk(5), raise_server_exceptions=False) as made:
        error = refused(made.get("api/library"), 500)
    assert "report it" in error["message"]


# --- instances -----------------------------------------------------------------------


def test_the_library_has_a_sentence_on_each_instance(client: TestClient) -> None:
    found = client.get("api/library").json()
    assert TINY in found
    assert "tiny/offers" not in found
    assert all(about.endswith(".") for about in found.values())
    for name in [*found][::20]:
        cluster = load_instance(name).planned_cluster
        for kind in cluster.gpus:
            count = sum(node.count for node in cluster.nodes if node.gpu == kind)
            assert f"{count} {kind}" in found[name] or count == 0


def test_an_instance_that_generates_is_refused_and_no_example(
    client: TestClient,
) -> None:
    name = "post_training/tiny"
    told = client.post("api/instances/named", json={"name": name})
    assert "which GPUs train and generate" in refused(told, 400)["message"]
    assert name not in client.get("api/library").json()


def test_any_name_of_a_file_can_be_uploaded(client: TestClient) -> None:
    text = (ROOT / "instances/tiny/two-nodes.yaml").read_text("utf-8")
    for name in ("\N{GRINNING FACE}" * 200, "..", "a/b.yaml", ".json"):
        told = client.post("api/instances/file", json={"name": name, "text": text})
        assert told.status_code == (400 if name.endswith(".json") else 200), told.text


def test_an_instance_is_given_back_as_a_file(
    client: TestClient, tmp_path: Path
) -> None:
    first = tiny(client)
    path = tmp_path / "instance.yaml"
    path.write_text(client.get(f"api/instances/{first['digest']}/instance.yaml").text)
    assert hetopt.load(path).digest == first["digest"]
    assert first["gpus"] == hetopt.load(TINY).planned_cluster.gpu_count


# --- plans ---------------------------------------------------------------------------


def test_a_plan_ends_with_what_is_known_of_it(planned: dict[str, Any]) -> None:
    assert planned["kind"] == "done"
    assert planned["status"] == "optimal"
    board = planned["board"]
    assert board["objective_us"] == planned["objective"] == planned["bound"]
    assert board["gap"] == 0
    assert board["problems"] == []
    assert board["rows"]
    assert dict(map(tuple, board["totals"]))["iteration"]


def test_plans_come_as_files_that_check_takes(
    client: TestClient, planned: dict[str, Any], tmp_path: Path
) -> None:
    board = planned["board"]
    told = client.get(f"api/plans/{board['id']}/plan.json")
    assert "attachment" in told.headers["content-disposition"]
    path = tmp_path / "plan.json"
    path.write_text(told.text)
    assert hetopt.check(path).objective == board["objective_us"]
    again = {"name": "plan.json", "text": told.text}
    found = asked(client, "api/instances/file", again)
    assert found["digest"] == board["instance"]
    assert found["board"]["objective_us"] == board["objective_us"]


def test_a_timeline_is_the_page_that_simulate_writes(
    client: TestClient, planned: dict[str, Any], tmp_path: Path
) -> None:
    name = planned["board"]["id"]
    told = client.get(f"api/plans/{name}/timeline.html")
    assert told.status_code == 200
    plan, page = tmp_path / "plan.json", tmp_path / "timeline.html"
    plan.write_text(client.get(f"api/plans/{name}/plan.json").text)
    assert typed("simulate", plan, "--out", page).exit_code == 0
    assert told.text == page.read_text(encoding="utf-8")


def test_a_picture_of_the_plan_is_drawn(
    client: TestClient, planned: dict[str, Any]
) -> None:
    told = client.get(f"api/plans/{planned['board']['id']}/plan.png")
    assert told.headers["content-type"] == "image/png"
    assert told.content.startswith(b"\x89PNG")


def test_an_explanation_is_a_page_by_itself(
    client: TestClient, planned: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk, "EXPLAIN_S", 0.0)
    told = client.get(f"api/plans/{planned['board']['id']}/explained.html")
    assert told.status_code == 200
    assert told.text.startswith("<!DOCTYPE html>") or "<html" in told.text[:200]
    assert "http" not in told.text.split("<body")[0].replace("http-equiv", "")


def test_a_plan_with_faults_is_shown_with_them(client: TestClient) -> None:
    data = hetopt.load(TINY)
    gpu = f"{data.planned_cluster.nodes[0].name}:0"
    stage = {"layers": [0, 1], "replicas": [{"gpus": [gpu]}]}
    plan = {"pipelines": [{"micro_batches": 1, "stages": [stage]}]}
    text = json.dumps({"instance": data.model_dump(mode="json"), "plan": plan})
    found = asked(client, "api/instances/file", {"name": "p.json", "text": text})
    board = found["board"]
    assert any("layer_missing" in problem for problem in board["problems"])
    assert not board["valid"]
    assert (board["objective_us"], board["gap"], board["rows"]) == (None, None, [])


def test_a_plan_that_is_stopped_at_once_ends_and_another_may_begin(
    client: TestClient,
) -> None:
    name = {"name": "hexiscale/setting-1-llama2-7b"}
    digest = asked(client, "api/instances/named", name)["digest"]
    order = {"instance": digest, "time_limit": 600}
    for _ in range(2):
        job = client.post("api/jobs", json=order).json()["job"]
        assert client.get("api/state").json()["job"] == job
        assert client.post(f"api/jobs/{job}/stop").status_code == 202
        last = events(client, job)[-1]
        assert (last["kind"], last["stop"]) == ("done", "interrupted")


def test_a_plan_starts_from_the_best_one_that_is_known_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    instance = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
    instance = instance.model_copy(update={"name": "mine"})
    slow, fast = (hetopt.plan(instance, x) for x in ("megatron", "hexiscale"))
    begun: list[Any] = []
    monkeypatch.setattr(desk, "Job", lambda *words: begun.append(words))
    mine = Desk(5)
    mine.open(json.loads(json.dumps(slow.to_file())))
    mine.begin(instance.digest, 1)
    assert fast.plan is not None
    mine.put(instance.digest, fast.plan)
    mine.begin(instance.digest, 1)
    assert [start for _, _, start, _ in begun] == [slow.plan, fast.plan]


# --- the planning process ----------------------------------------------------------


def told_events(order: dict[str, Any]) -> list[dict[str, Any]]:
    channel = StringIO()
    teller = Teller(channel)
    teller.tell(**answered(order, teller))
    return [json.loads(line) for line in channel.getvalue().splitlines()]


def test_incumbent_and_bound_close_in_and_the_last_event_is_a_plan_file(
    tmp_path: Path,
) -> None:
    order = {"instance": hetopt.load(TINY).model_dump(mode="json"), "time_limit": 20}
    told = told_events(order)
    document = told[-1]["document"]
    states = [one for one in told if one["kind"] == "state"]
    plans = [one["incumbent"] for one in states if one["incumbent"] is not None]
    bounds = [one["bound"] for one in states if one["bound"] is not None]
    assert plans == sorted(plans, reverse=True)
    assert bounds == sorted(bounds)
    assert plans[-1] == document["objective"]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document))
    judged = hetopt.check(path)
    assert judged.valid
    assert judged.objective == document["objective"]


def test_what_a_program_lacks_is_the_last_event() -> None:
    tree = hetopt.load(TINY).on("hexiscale").model_dump(mode="json")
    *_, last = told_events({"instance": tree, "time_limit": 5})
    assert last["kind"] == "error"
    assert last["error"]["kind"] == "unsupported"
    assert "not supported by our HexiScale export" in last["error"]["message"]


def test_the_worker_starts_from_the_orders_plans_and_from_the_library() -> None:
    data = hetopt.load("autohet/a100-h20-4x4-gpt3-6.7b")
    order = {"instance": data.model_dump(mode="json"), "time_limit": 0.1}
    assert told_events(order)[-1]["document"]["status"] == "optimal"  # the library's
    mine = data.model_copy(update={"name": "mine"})
    made = hetopt.plan(mine, "hexiscale", limits=20)
    order = {
        "instance": mine.model_dump(mode="json"),
        "time_limit": 0.1,
        "start": made.plan.model_dump(mode="json"),
    }
    assert told_events(order)[-1]["document"]["objective"] <= made.objective
