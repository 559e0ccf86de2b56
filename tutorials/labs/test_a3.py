"""Lab A3, a recompute and a cache: pytest tutorials/labs/test_a3.py --submission mine.py"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from refimpl.memory import UNLIMITED
from refimpl.network import Step, Tensor
from refimpl.planner import Context, Program, plan
from refimpl.planner.loop import Planner
from refimpl.text import size
from tutorials.labs.gates import Marked
from tutorials.labs.lab import LAYER_WISE, Case, Lab, machine, most_live, network_of

SETUP = LAYER_WISE
LAB = Lab(
    "a3",
    ("recompute", "cache"),
    {"SETUP": SETUP},
    again=(1.06, 1.12, 1.2),
    trained=Case("", "tiny-resnet", 4, 1300 << 10),
)

Asked = Callable[..., Planner]


def layer_wise(name: str, batch: int) -> Program:
    """The program of the lab's setup alone, with memory enough."""
    return plan(network_of(name, batch), SETUP, machine(), UNLIMITED)


def in_a_budget_that_weights_fill(asked: Asked, name: str) -> Planner:
    """So that each step is too full, and every map that can be dropped should be."""
    return asked(name, 4, network_of(name, 4).resident_bytes)


# -- step 1: any cache -------------------------------------------------------------------------------------------------


def test_the_victim_is_never_locked(asked: Asked) -> None:
    made = asked("tiny-vgg", 4)
    maps = made.context.maps_across()
    cache = made.setup.cache.bind(made.context)
    for one in maps:
        cache.enter(one)
    for one in maps:
        locked = {other for other in maps if other is not one}
        victim = cache.victim(locked, 20)
        assert victim is one, (
            f"victim returned {victim}; of the {len(maps)} tensors that are here only {one} is not locked"
        )
    assert cache.victim({*maps}, 20) is None, "each tensor is locked, and victim returned one: return None"


def test_what_has_left_is_no_victim(asked: Asked) -> None:
    made = asked("tiny-vgg", 4)
    gone, here, *_ = made.context.maps_across()
    cache = made.setup.cache.bind(made.context)
    cache.enter(gone)
    cache.enter(here)
    cache.leave(gone)
    victim = cache.victim((), 20)
    assert victim is here, f"{gone} has left and {here} is here; victim returned {victim}"
    victim = made.setup.cache.bind(made.context).victim((), 20)
    assert victim is None, f"a new plan has nothing on the device, and victim returned {victim} of the last one"


def test_it_fits_where_layer_wise_does_not(planned: Callable[..., Program]) -> None:
    needed = most_live(layer_wise("tiny-resnet", 8))
    held = most_live(planned("tiny-resnet", 8, needed * 2 // 3))
    assert held < needed, f"a step holds {size(held)}, as many as without a cache; return a victim where there is one"


# -- step 2: maps that one cheap step rebuilds -------------------------------------------------------------------------


def makers(context: Context, tensor: Tensor) -> list[Step]:
    """The forward steps that write a map, or change it in place."""
    return [step for step in context.uses[tensor] if step.forward and tensor in (*step.writes, *step.updates)]


def cheap(context: Context) -> Iterator[tuple[Tensor, list[Step]]]:
    """Every map that cheap layers alone have made, and that backward uses; its makers."""
    for tensor in context.maps_across():
        made = makers(context, tensor) if context.can_be_rebuilt(tensor) else []
        if made and all(step.layer.traits.work == "pass" for step in made):
            yield tensor, made


def readers(made: Planner) -> Iterator[tuple[Tensor, Step]]:
    """Each dropped map with each step of backward that reads it."""
    for step in made.network.steps[made.network.depth :]:
        for tensor in (*step.reads, *step.updates):
            if made.context.is_dropped(tensor):
                yield tensor, step


def again(made: Planner, tensor: Tensor, step: Step) -> list[Step]:
    """The steps that run again for a step of backward, if what is dropped is not there."""
    return [one for one, _ in made.mover.recompute.chain(tensor, step, lambda x: not made.context.is_dropped(x))]


def named(steps: list[Step]) -> str:
    return ", ".join(map(str, steps)) or "empty"


def test_a_pool_is_rebuilt_by_one_step(asked: Asked) -> None:
    made = in_a_budget_that_weights_fill(asked, "tiny-vgg")
    for one, (maker, *_) in cheap(made.context):
        if maker.layer.kind == "pool":
            assert made.context.is_dropped(one), f"{maker} makes {one} from {maker.layer.x} again: drop it"
            step = next(step for tensor, step in readers(made) if tensor is one)
            chain = again(made, one, step)
            assert chain == [maker], f"{step} reads {one}: {maker} rebuilds it, and the chain is {named(chain)}"


def test_sources_name_the_input_of_a_dropped_map(asked: Asked) -> None:
    made = in_a_budget_that_weights_fill(asked, "tiny-vgg")
    assert made.context.rebuilt_from, "sources is empty: a pool's input has to be there when the pool runs again"
    for one, step in readers(made):
        for x in (x for maker in makers(made.context, one) for x in maker.reads if x.managed):
            if not made.context.is_dropped(x):
                numbers = made.context.rebuilt_from.get(x, ())
                assert step.number in numbers, (
                    f"{step} reads {one}, rebuilt from {x}: sources has {x} for {[*numbers]}; add {step.number}"
                )


def test_what_one_cheap_layer_makes_is_dropped(asked: Asked) -> None:
    made = in_a_budget_that_weights_fill(asked, "tiny-convnext")
    for one, made_by in cheap(made.context):
        if len(made_by) == 1 and not any(map(made.context.is_dropped, made_by[0].reads)):
            kind = made_by[0].layer.kind
            assert made.context.is_dropped(one), (
                f"{made_by[0]} makes {one} again, and a {kind} is one cheap pass (layer.traits.work): drop it"
            )


# -- step 3: chains ----------------------------------------------------------------------------------------------------


def test_a_chain_begins_at_a_map_that_is_there(asked: Asked) -> None:
    made = in_a_budget_that_weights_fill(asked, "tiny-se")
    for one, made_by in cheap(made.context):
        if len(made_by) == 1:
            assert made.context.is_dropped(one), (
                f"{made_by[0]} makes {one} from {made_by[0].layer.x}; a chain can make both: drop {one}"
            )
    for one, step in readers(made):
        done, chain = set[Tensor](), again(made, one, step)
        for run in chain:
            for x in run.reads:
                assert x in done or not made.context.is_dropped(x), (
                    f"the chain of {one} for {step} is {named(chain)}: {run} reads {x}, which is dropped; make it first"
                )
            done.update(run.writes)
        assert one in done, f"the chain of {one} for {step} is {named(chain)}: it does not make {one}"


def test_an_in_place_relu_runs_again_too(asked: Asked) -> None:
    made = in_a_budget_that_weights_fill(asked, "tiny-unet")
    for one, made_by in cheap(made.context):
        assert made.context.is_dropped(one), f"cheap layers alone make {one} ({named(made_by)}): drop it"
    for one, step in readers(made):
        chain, made_by = again(made, one, step), makers(made.context, one)
        assert [run for run in chain if run in made_by] == made_by, (
            f"{named(made_by)} make {one}, the last of them in place; the chain for {step} is {named(chain)}"
        )


def roots(context: Context, tensor: Tensor) -> Iterator[Tensor]:
    """The maps that are kept, and from which a dropped one is rebuilt."""
    for x in (x for maker in makers(context, tensor) for x in maker.reads if x.managed):
        if context.is_dropped(x):
            yield from roots(context, x)
        else:
            yield x


def test_a_checkpoint_outlives_its_last_rebuild(asked: Asked) -> None:
    for name in ("tiny-unet", "tiny-se"):
        made = in_a_budget_that_weights_fill(asked, name)
        context, longest = made.context, 0
        for one, step in readers(made):
            longest = max(longest, len(again(made, one, step)))
            for x in roots(context, one):
                assert step.number in context.rebuilt_from.get(x, ()), (
                    f"{step} reads {one}, whose chain begins at {x}: without {step.number} in sources {x} may be gone"
                )
        assert longest > 1, f"no chain has two steps: drop what cheap layers make in {name} one after the other"


# -- step 4: as few as the budget asks for -----------------------------------------------------------------------------


def test_nothing_is_dropped_where_all_fits(asked: Asked) -> None:
    assert in_a_budget_that_weights_fill(asked, "tiny-se").context.fates, (
        "tiny-se is far too large, and nothing is dropped"
    )
    needed = most_live(layer_wise("tiny-se", 8))
    fates = asked("tiny-se", 8, needed * 5 // 4).context.fates
    dropped = sum(tensor.nbytes for tensor in fates)
    assert not fates, f"tiny-se(8) needs {size(needed)}, in {size(needed * 5 // 4)} {size(dropped)} of maps are dropped"


def test_the_fullest_step_decides(asked: Asked) -> None:
    """In tiny-vit one step of backward is too full, and not all cheap maps still wait there."""
    program = layer_wise("tiny-vit", 8)
    needed, resident = most_live(program), program.network.resident_bytes
    budget = needed * 19 // 20
    context = asked("tiny-vit", 8, budget).context
    full = [row.step.number for row in program.rows if resident + row.live_bytes + row.workspace_bytes > 0.9 * budget]
    for one in context.fates:
        first, last = context.last_forward_use(one) + 1, context.first_backward_use(one) - 1
        assert any(first <= number <= last for number in full), (
            f"tiny-vit(8) in {size(budget)} is more than 90 % full in steps {full} alone; {one} is dropped, and waits "
            f"from step {first} to {last}"
        )
    dropped, every = (sum(one.nbytes for one in maps) for maps in (context.fates, [one for one, _ in cheap(context)]))
    assert 0 < dropped < every / 2, (
        f"tiny-vit(8) needs {size(needed)}, and has {size(budget)}: {size(dropped)} of {size(every)} of cheap maps are "
        "dropped; drop some, and no more when the fullest step fits"
    )


class TestMark(Marked):
    lab = LAB
