"""The page in a browser: an example is opened and planned."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette")
uvicorn = pytest.importorskip("uvicorn")

from hetopt.serving.app import application, bound  # noqa: E402
from hetopt.serving.desk import Desk  # noqa: E402

pytestmark = pytest.mark.slow
WIDTHS = (1280, 768, 390)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server in this process."""
    listening = bound(0)
    made = application(Desk(4), "token")
    server = uvicorn.Server(uvicorn.Config(made, log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}/token/"
    server.should_exit = True
    thread.join()


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
    page.on(
        "request",
        lambda one: one.url.startswith(address) or complaints.append(one.url),
    )
    page.goto(address)
    page.wait_for_selector("#example optgroup", state="attached")
    return page


def test_an_example_is_opened_and_planned(
    chromium: Any, address: str, complaints: list[str]
) -> None:
    page = opened(chromium, address, complaints)
    page.select_option("#example", "tiny/two-nodes")
    page.wait_for_selector("#instance h3")
    page.locator("#go").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#stages td", timeout=60_000)
    assert "per iteration" in page.inner_text("#verdict")
    decoded = "async (one) => { await one.decode(); return one.naturalWidth; }"
    assert page.locator("#picture").evaluate(decoded) > 100
    with page.expect_download() as kept:
        page.click("#get-plan")
    assert kept.value.suggested_filename == "plan.json"
    assert complaints == []


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_cut_off_and_text_has_contrast(
    chromium: Any, address: str, complaints: list[str], width: int, scheme: str
) -> None:
    size = {"width": width, "height": 800}
    page = opened(chromium, address, complaints, viewport=size, color_scheme=scheme)
    page.wait_for_selector("#stages td")  # of the plan before
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
