"""The cheat sheet is what its command makes of the code."""

from __future__ import annotations

from refimpl.names.modules import MODULES as SLOTS
from tests.test_docs import script

cheat_sheet = script("cheat_sheet")


def test_the_page_is_what_the_command_makes() -> None:
    assert cheat_sheet.PAGE.read_text(encoding="utf-8") == cheat_sheet.page(), "python docs/cheat_sheet.py"


def test_every_slot_has_its_row_and_its_word() -> None:
    page = cheat_sheet.page()
    assert all(f"| `{slot}` |" in page and f"| `{slot}=` |" in page for slot in SLOTS)


def test_all_nine_instructions_are_there_and_a_map_lives_by_them() -> None:
    kinds = [kind.__name__ for kind in cheat_sheet.kinds()]
    assert len(kinds) == len({*kinds}) == 9
    page = cheat_sheet.page()
    for words in ("allocate", "free", "launch", "copy out", "copy in", "to store", "from store", "record", "wait"):
        assert f"| `{words}` |" in page and any(words in steps for _, steps in cheat_sheet.LIFE)
