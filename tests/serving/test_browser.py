"""The page in a browser: from nothing to a plan, and a stage moved by keyboard."""

import os
import shutil
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")
playwright = pytest.importorskip("playwright.sync_api")

from hetopt.serving.app import application  # noqa: E402
from hetopt.serving.desk import Desk  # noqa: E402
from hetopt.serving.guard import Guard  # noqa: E402
from hetopt.serving.server import address_of, bound  # noqa: E402

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
BROWSER = os.environ.get("HETOPT_CHROMIUM") or next(
    filter(None, map(shutil.which, BROWSERS)), None
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(BROWSER is None, reason="no Chromium: set HETOPT_CHROMIUM"),
]
WIDTHS = (1280, 768, 390)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in this process."""
    listening = bound("127.0.0.1", 0)
    guard = Guard(application(Desk(4)), "token")
    server = uvicorn.Server(uvicorn.Config(guard, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"{address_of(listening, '127.0.0.1')}/token/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"]
        )
        yield browser
        browser.close()


@pytest.fixture
def complaints() -> list[str]:
    return []


def opened(chromium: Any, address: str, complaints: list[str], **about: Any) -> Any:
    page = chromium.new_context(**about).new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type == "error" else None,
    )
    page.on("request", lambda asked: complaints.extend(_beyond(asked.url, address)))
    page.goto(address)
    page.wait_for_selector("#instance h3")
    return page


def _beyond(url: str, address: str) -> list[str]:
    return [] if url.startswith(address) else [f"asked for {url}"]


def test_from_nothing_to_a_plan_to_a_stage_moved_by_keys(
    chromium: Any, address: str, complaints: list[str]
) -> None:
    page = opened(chromium, address, complaints)
    page.locator("#go").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#tried li")
    page.wait_for_selector("#pipelines .stage", timeout=60_000)
    assert "planner" in page.inner_text("#verdict-title")
    border = page.locator("#pipelines .border").first
    layer = int(border.get_attribute("aria-valuenow"))
    border.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#step-1")
    moved = page.locator("#pipelines .border").first
    assert int(moved.get_attribute("aria-valuenow")) == layer + 1
    assert page.evaluate("document.activeElement.id") == moved.get_attribute("id")
    assert "longer than" in page.inner_text("#verdict")
    page.keyboard.press("Control+z")
    page.wait_for_selector("#step-0[aria-current]")
    first = page.locator("#pipelines .stage").first
    first.focus()
    page.keyboard.press("s")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    page.wait_for_selector("#step-1[aria-current]")
    assert "⇄" in page.inner_text("#step-1")
    with page.expect_download() as kept:
        page.click("#get-plan")
    assert kept.value.suggested_filename == "plan.json"
    assert complaints == []


def test_a_border_is_dragged_and_the_last_place_is_what_counts(
    chromium: Any, address: str, complaints: list[str]
) -> None:
    page = opened(chromium, address, complaints)  # with the plan of before
    border = page.locator("#pipelines .border").first
    border.scroll_into_view_if_needed()
    box, layer = border.bounding_box(), border.get_attribute("aria-valuenow")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 120, y, steps=12)
    page.mouse.up()
    page.wait_for_selector("#step-1[aria-current]")
    page.wait_for_timeout(300)
    assert page.locator("#history li").count() == 2
    assert (
        page.locator("#pipelines .border").first.get_attribute("aria-valuenow") != layer
    )
    assert complaints == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_and_text_has_contrast(
    chromium: Any, address: str, complaints: list[str], width: int, scheme: str
) -> None:
    size = {"width": width, "height": 800}
    page = opened(chromium, address, complaints, viewport=size, color_scheme=scheme)
    page.wait_for_selector("#pipelines .stage")
    page.locator("#pipelines .stage").first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    for where in ("body", ".soft", "#verdict", "#go"):
        assert page.evaluate(CONTRAST, where) >= 4.5, where
    assert complaints == []


CONTRAST = """(where) => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
    .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const found = document.querySelector(where);
  let behind = found;
  const clear = (one) => (rgb(getComputedStyle(one).backgroundColor)[3] ?? 1) === 0;
  while (clear(behind)) behind = behind.parentElement;
  const ink = light(rgb(getComputedStyle(found).color));
  const paper = light(rgb(getComputedStyle(behind).backgroundColor));
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}"""
