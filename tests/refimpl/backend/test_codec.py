"""A codec that the project does not know: it is planned, proved, shown, written out and run without another change.

So no file but a codec's own has to know how a map is written in the store.  `test_script` runs what is written out.
"""

from __future__ import annotations

import dataclasses

import pytest

from refimpl.backend import Drawn
from refimpl.backend.script import written_out
from refimpl.planner import FromStore, Program, ToStore
from refimpl.planner.verify import Unsafe
from refimpl.report.exports import chrome_trace
from refimpl.report.page.document import document
from refimpl.report.tables import plan_table
from refimpl.report.timeline_picture import timeline_picture
from tests.messages import raises_naming
from tests.refimpl.backend.running import MACHINE, dense_network, differing, plain_training, trainer
from tests.refimpl.modules import Mirror, Mirrored, OffloadSome, PrefetchAhead, least_plan, setup
from tests.refimpl.plainly import draw_batch

STEPS = 2


@pytest.fixture(scope="module")
def program() -> Program:
    modules = setup(pinned=Mirrored(), offload=OffloadSome(1.0), prefetch=PrefetchAhead(1))
    made = least_plan(dense_network(), modules, dataclasses.replace(MACHINE, host_rate=1e12))
    assert {type(i) for i in made.instructions} > {ToStore, FromStore}
    made.verify()
    return made


def test_the_proof_knows_its_room(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mirror, "room", lambda self, nbytes: program.store_bytes + 1)
    with raises_naming(Unsafe, "store"):
        program.verify()


def test_it_is_shown_by_its_words(program: Program) -> None:
    line = program.simulate()
    first = next(i for i in program.instructions if isinstance(i, ToStore))
    words = [line.split()[:2] for line in program.listing().splitlines()]
    assert ["mirror", str(first.tensor)] in words and ["unmirror", str(first.tensor)] in words
    full = program.listing(instructions=True)
    assert f"pinned {first.pinned_address:#x} → store {first.store_address:#x} {first.tensor}" in full
    assert {"mirror", "unmirror"} <= {event.get("cat") for event in chrome_trace(program, line)["traceEvents"]}
    assert "mirrored on the host" in [row[0] for row in plan_table(program, line).rows]
    assert set(document(program, line)["words"].values()) == {"mirror", "unmirror"}
    legend = [text.get_text() for text in timeline_picture(program, line).legends[0].get_texts()]
    assert {"mirror", "unmirror"} <= set(legend)
    assert "on_host(mirror, " in written_out(program, "a test")


def test_training_with_it_has_the_same_bits(program: Program) -> None:
    with trainer(program, order=Drawn(1), poison=True) as made:
        for number in range(STEPS):
            made.step(*draw_batch(program.network, number))
        assert differing(made.state(), plain_training(program, STEPS)) == []
        assert {one.tensor for one in made.compressed} == {
            i.tensor.name for i in program.instructions if isinstance(i, ToStore)
        }
