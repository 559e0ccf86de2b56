"""Does every page of the site fit its window?  `python docs/widths.py docs/_build/html`, with a browser at hand.

A table or a line of code that is too wide scrolls inside itself; the page never does.  In the widest window no line of
code is cut.  Exit status 1 if one is, or if a page scrolls sideways.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

WIDTHS = (400, 768, 1280)  #: pixels; a page that fits the last fits every wider window
BROWSERS = ("chromium", "google-chrome", "chromium-browser")
#: The blocks of code that scroll sideways: by how many pixels, and their longest line.
CUT = """[...document.querySelectorAll("pre")].filter(block => block.scrollWidth > block.clientWidth + 1).map(block => {
    const line = block.innerText.split("\\n").sort((a, b) => b.length - a.length)[0];
    return `${block.scrollWidth - block.clientWidth} pixels of a line of code are cut: ${line}`;
})"""


def too_wide(folder: Path, browser: str) -> list[str]:
    """`page: 1359 of 1280 pixels` for every page that scrolls sideways, and a line for each block that does."""
    from playwright.sync_api import sync_playwright

    found = []
    with sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = window.new_page()
        for path in sorted(folder.rglob("*.html")):
            page.goto(path.as_uri(), wait_until="domcontentloaded")
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                taken = page.evaluate("document.documentElement.scrollWidth")
                if taken > width:
                    found.append(f"{path.relative_to(folder)}: {taken} of {width} pixels")
            found += [f"{path.relative_to(folder)}: {cut}" for cut in page.evaluate(CUT)]
    return found


def main() -> int:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        print("widths of the pages: not looked at, for want of a browser (apt-get install chromium)")
        return 0
    wide = too_wide(Path(sys.argv[1]).resolve(), browser)
    print("\n".join(wide) or f"every page fits windows of {WIDTHS[0]} to {WIDTHS[-1]} pixels")
    return bool(wide)


if __name__ == "__main__":
    sys.exit(main())
