"""The cheat sheet is what its command makes of the code."""

from __future__ import annotations

from tests.test_docs import script

cheat_sheet = script("cheat_sheet")


def test_the_page_is_what_the_command_makes() -> None:
    assert cheat_sheet.PAGE.read_text(encoding="utf-8") == cheat_sheet.page(), "python docs/cheat_sheet.py"
