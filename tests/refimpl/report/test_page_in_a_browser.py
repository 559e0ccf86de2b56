"""The page in two real browsers, headless and offline: what a reader does to it, and what it shows then.

The suite has Chromium, the campaign Firefox too, which takes ten times as long to start.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import refimpl
from refimpl.planner import Program
from refimpl.report.page import write_page

pytestmark = pytest.mark.slow
BROWSERS = {"chromium": ("chromium", "google-chrome", "chromium-browser"), "firefox": ("firefox-esr", "firefox")}
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@pytest.fixture(scope="module", params=["chromium", pytest.param("firefox", marks=pytest.mark.campaign)])
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = next(filter(None, map(shutil.which, BROWSERS[request.param])), None)
    if found is None:
        pytest.skip(f"{request.param} is not installed: apt-get install {BROWSERS[request.param][0]}")
    with playwright.sync_playwright() as driver:
        if request.param == "chromium":
            yield driver.chromium.launch(executable_path=found, args=QUIET)
        else:
            yield driver.firefox.launch(executable_path=found, channel="moz-firefox")


@pytest.fixture(scope="module")
def program() -> Program:
    return refimpl.plan("vgg16", "vdnn-all", "titan-x", "12GiB")


@pytest.fixture(scope="module")
def files(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pages")
    write_page(folder / "one.html", program)
    write_page(folder / "kept.html", refimpl.plan("lenet", "baseline", "titan-x"))
    write_page(folder / "two.html", program, against=refimpl.plan("vgg19", "superneurons", "titan-x", "6GiB"))
    return folder


class Opened:
    """A page in a window, and everything that went wrong there."""

    def __init__(self, browser: Any, file: Path, width: int = 1480, height: int = 960, fields: str = "") -> None:
        self.context = browser.new_context(viewport={"width": width, "height": height})
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.extend([said.text] if said.type == "error" else []))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"file://{file}{fields}")
        self.page.wait_for_function("window.painted > 0")

    def __call__(self, script: str) -> Any:
        return self.page.evaluate(script)

    def settle(self) -> None:
        self.page.wait_for_timeout(80)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.wrong == []
        assert all(url.startswith("file://") for url in self.requests), self.requests


def middle_of(tensor: str) -> str:
    """A script: where on the screen the tensor's first block is."""
    return f"""(() => {{
        const panel = state.boards[0].addresses, {{ blocks, blocksOf, numberOf }} = panel.model;
        const [block] = blocksOf.get(numberOf.get("{tensor}")), at = blocks[state.axis];
        const box = panel.overlay.getBoundingClientRect();
        return [box.left + panel.x((at.begin[block] + at.released[block]) / 2),
                box.top + panel.y(blocks.address[block] + blocks.bytes[block] / 2)];
    }})()"""


def test_a_reader_follows_a_tensor(browser: Any, files: Path) -> None:
    with Opened(browser, files / "one.html") as page:
        x, y = page(middle_of("conv2_1"))
        page.page.mouse.move(x, y)
        page.settle()
        assert page("state.hovered") == "conv2_1"
        tip = page.page.inner_text("#tip")
        assert "conv2_1 · map" in tip and "offload: vdnn-all" in tip
        page.page.mouse.click(x, y)
        page.settle()
        assert page("state.tensor") == "conv2_1"
        life = page.page.inner_text("#card")
        for word in ("allocate", "written by", "copy out", "copy in", "read by", "free", "vdnn-all"):
            assert word in life
        assert page.page.locator(".line.own").count() > 0
        page.page.keyboard.press("Escape")
        assert page("state.tensor") is None


def test_zoom_move_and_keys(browser: Any, files: Path) -> None:
    with Opened(browser, files / "one.html", fields="#step=72") as page:
        whole = page("[state.begin, state.end]")
        x, y = page(middle_of("conv3_1"))
        place = page(
            f"state.boards[0].addresses.place({x} - document.querySelector('.plot').getBoundingClientRect().left)"
        )
        page.page.mouse.move(x, y)
        page.page.mouse.wheel(0, -400)
        page.settle()
        page.page.wait_for_timeout(400)  # writing the address moves nothing
        begin, end = page("[state.begin, state.end]")
        assert end - begin < 0.8 * (whole[1] - whole[0]) and begin < place < end
        page.page.mouse.down()
        page.page.mouse.move(x + 150, y, steps=4)
        page.page.mouse.up()
        assert page("state.begin") < begin and page("state.tensor") is None
        page.page.keyboard.press("0")
        assert page("[state.begin, state.end]") == whole
        for key, step in (("Home", 1), ("ArrowRight", 2), ("Shift+ArrowRight", 12), ("ArrowLeft", 11), ("p", 72)):
            page.page.keyboard.press(key)
            assert page("state.step") == step, key
        page.page.keyboard.press("t")
        assert page("state.axis") == "time"
        assert page("state.end") == pytest.approx(page("state.models[0].seconds"))
        page.page.keyboard.press("/")
        page.page.keyboard.type("pool3")
        page.page.keyboard.press("Enter")
        assert page("[state.tensor, state.models[0].stepName(state.step)]") == [None, "pool3 forward"]
        page.page.keyboard.press("?")
        assert page.page.locator("#keys").is_visible()


def test_the_address_holds_step_tensor_and_axis(browser: Any, files: Path) -> None:
    with Opened(browser, files / "one.html", fields="#step=12&tensor=conv4_2&axis=time") as page:
        assert page("[state.step, state.tensor, state.axis]") == [12, "conv4_2", "time"]
        page.page.keyboard.press("ArrowRight")
        page.page.wait_for_function("location.hash.includes('step=13')")
        page.page.wait_for_timeout(300)
        assert page("[state.step, state.tensor]") == [13, "conv4_2"]


def test_it_opens_at_the_largest_map_that_leaves_or_at_the_fullest_step(browser: Any, files: Path) -> None:
    for name, wanted in (("one.html", [3, "conv1_1"]), ("kept.html", [22, None])):
        with Opened(browser, files / name) as page:
            assert page("[state.step, state.tensor]") == wanted
            assert ("copy out" in page.page.inner_text("#card")) is (name == "one.html")


def test_two_programs_and_their_differences(browser: Any, files: Path) -> None:
    with Opened(browser, files / "two.html") as page:
        chosen = page("state.models.map((model) => model.fate(model.numberOf.get(state.tensor))[0])")
        assert chosen[0] == "offload" != chosen[1]
        shown = page.page.inner_text("#list")
        assert "Maps with another fate" in shown and "steps of B not in A" in shown
        page("setStep(state.models[0].stepOfName.get('fc6 backward'))")
        second = page("state.models[1].stepName(state.boards[1].step())")
        assert second == "fc6 backward"  # paired by its layer: the networks differ in length
        page.page.locator("#tabs button", has_text="program B").click()
        page.settle()
        assert "fc6 backward" in page.page.inner_text("#list")


@pytest.mark.parametrize("width", [400, 1480])
def test_it_fits_windows(browser: Any, files: Path, width: int) -> None:
    for name in ("one.html", "two.html"):
        with Opened(browser, files / name, width) as page:
            assert page("document.documentElement.scrollWidth") <= width
            widths = page("state.boards.map((board) => board.memory.right - LEFT)")
            assert min(widths) > (150 if width < 1000 else 300)
