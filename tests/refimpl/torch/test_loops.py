"""The loops that people write around a module: each has the bits of plain PyTorch under a plan, and leaves nothing.

A loop gets what it trains, the user's own module in it, and the batches; it returns what it has seen.  Beside that the
gradients, the weights and the buffers at its end are compared.
"""

from __future__ import annotations

import copy
import io
import threading
from collections.abc import Callable
from typing import Any

import pytest

import refimpl

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.func import functional_call  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.optim import swa_utils  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from refimpl.torch import DeferredTransfers, Planned  # noqa: E402
from tests.matrix import some  # noqa: E402
from tests.refimpl.torch.trained_modules import SHAPE, Branches, nothing_left, program_of  # noqa: E402

POLICIES = ("superneurons", "vdnn-all")
#: In these the user's own hooks on saved tensors come first, and the plan is not carried out.
OTHERS_FIRST = ("save_on_cpu around",)
Loop = Callable[[Any, Any], Any]
LOOPS: dict[str, Loop] = {}


def loop(name: str) -> Callable[[Loop], Loop]:
    def named(function: Loop) -> Loop:
        LOOPS[name] = function
        return function

    return named


def batches(count: int = 2, images: int = SHAPE[0]) -> list[Any]:
    draw = torch.Generator().manual_seed(images)
    return [
        (torch.randn(images, *SHAPE[1:], generator=draw), torch.randint(0, 10, (images,), generator=draw))
        for _ in range(count)
    ]


X, Y = batches(1)[0]


def loss_of(model: Any, x: Any = X, y: Any = Y) -> Any:
    return functional.cross_entropy(model(x), y)


def trained(
    model: Any,
    given: Any = None,
    every: int = 1,
    optimiser: Any = None,
) -> list[Any]:
    """The usual loop.

    Args:
        model: what is trained.
        given: batches.
        every: the number of them that are accumulated.
        optimiser: of the model's parameters (None: AdamW).
    """
    optimiser = optimiser or torch.optim.AdamW(model.parameters(), 1e-2)
    found = []
    for number, (x, y) in enumerate(given or batches()):
        loss = loss_of(model, x, y)
        (loss / every).backward()
        found.append(loss.detach())
        if (number + 1) % every == 0:
            optimiser.step()
            optimiser.zero_grad()
    return found


# -- optimisers and gradients ------------------------------------------------------------------------------------------

LOOPS["AdamW"] = lambda model, module: trained(model)
LOOPS["accumulation"] = lambda model, module: trained(model, batches(4), every=2)


@loop("parameter groups and a schedule")
def _(model: Any, module: Any) -> Any:
    norms = [weight for name, weight in model.named_parameters() if "norm" in name]
    rest = [weight for name, weight in model.named_parameters() if "norm" not in name]
    groups = [{"params": norms, "weight_decay": 0.0}, {"params": rest, "lr": 0.1}]
    optimiser = torch.optim.SGD(groups, 0.05, momentum=0.9, nesterov=True, weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 0.2, total_steps=5)
    found = []
    for _ in range(3):
        found += trained(model, batches(1), optimiser=optimiser)
        schedule.step()
    return found


@loop("LBFGS, which calls forward several times")
def _(model: Any, module: Any) -> Any:
    optimiser = torch.optim.LBFGS(model.parameters(), 0.1, max_iter=3)

    def closure() -> Any:
        optimiser.zero_grad()
        loss = loss_of(model)
        loss.backward()
        return loss

    return [optimiser.step(closure).detach()]


@loop("SAM: two passes, weights moved between them")
def _(model: Any, module: Any) -> Any:
    loss_of(model).backward()
    with torch.no_grad():
        moved = [weight.grad * 0.05 for weight in model.parameters()]
        torch._foreach_add_(list(model.parameters()), moved)
    model.zero_grad()
    loss = loss_of(model)
    loss.backward()
    with torch.no_grad():
        torch._foreach_sub_(list(model.parameters()), moved)
    return [loss.detach(), *trained(model)]


@loop("an optimiser in backward")
def _(model: Any, module: Any) -> Any:
    found = []
    for weight in model.parameters():
        own = torch.optim.SGD([weight], 0.05)

        def step(_: Any, own: Any = own) -> None:
            own.step()
            own.zero_grad()

        weight.register_post_accumulate_grad_hook(step)
    for x, y in batches():
        loss = loss_of(model, x, y)
        loss.backward()
        found.append(loss.detach())
    return found


# -- types and layouts -------------------------------------------------------------------------------------------------


@loop("autocast to float16, GradScaler, clipping")
def _(model: Any, module: Any) -> Any:
    optimiser, found = torch.optim.AdamW(model.parameters(), 1e-2), []
    scaler = torch.amp.GradScaler("cpu", 2.0**10)
    for x, y in batches(2, 2):
        with torch.autocast("cpu", torch.float16):
            loss = loss_of(model, x, y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        found += [loss.detach(), nn.utils.clip_grad_norm_(model.parameters(), 1.0)]
        scaler.step(optimiser)
        scaler.update()
        optimiser.zero_grad()
    return found


LOOPS["channels_last module"] = lambda model, module: trained(
    model.to(memory_format=torch.channels_last),
    [(x.to(memory_format=torch.channels_last), y) for x, y in batches()],
)

# -- batches -----------------------------------------------------------------------------------------------------------

LOOPS["a smaller last batch"] = lambda model, module: trained(model, batches() + batches(1, 5))


# -- what is between iterations ----------------------------------------------------------------------------------------


@loop("training in eval mode")
def _(model: Any, module: Any) -> Any:
    return trained(model.eval()) + trained(model.train())


@loop("no_grad and inference_mode in train mode")
def _(model: Any, module: Any) -> Any:
    with torch.no_grad():
        found = [model(X)]
    with torch.inference_mode():
        found += [model(X).clone()]
    return [one.clone() for one in found] + trained(model)


@loop("freezing between")
def _(model: Any, module: Any) -> Any:
    found = trained(model)
    module.stem.requires_grad_(False)
    module.a[0].weight.requires_grad_(False)
    found += trained(model)
    return found + trained(model.requires_grad_())


@loop("state_dict loaded by assignment")
def _(model: Any, module: Any) -> Any:
    found = trained(model)
    model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)
    return found + trained(model)


@loop("deepcopy, and the copy is trained")
def _(model: Any, module: Any) -> Any:
    found = trained(model)
    other = copy.deepcopy(model)
    return found + trained(other) + trained(model) + list(other.parameters())


@loop("torch.save of the model, and what is loaded is trained")
def _(model: Any, module: Any) -> Any:
    found, file = trained(model), io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    other = torch.load(file, weights_only=False)
    return found + trained(other) + list(other.state_dict().values())


@loop("moving averages of the weights, and update_bn")
def _(model: Any, module: Any) -> Any:
    averaged = swa_utils.AveragedModel(model, multi_avg_fn=swa_utils.get_ema_multi_avg_fn(0.9))
    found = []
    for _ in range(2):
        found += trained(model)
        averaged.update_parameters(model)
    swa_utils.update_bn([x for x, _ in batches()], averaged)
    return found + list(averaged.state_dict().values()) + trained(averaged)


@loop("tied weights")
def _(model: Any, module: Any) -> Any:
    module.a[2].weight = module.a[1].weight
    return trained(model)


# -- several passes ----------------------------------------------------------------------------------------------------


@loop("siamese: two forwards, one backward")
def _(model: Any, module: Any) -> Any:
    one, other = model(X), model(X.flip(3))
    loss = functional.cross_entropy(one, Y) + (one - other).pow(2).mean()
    loss.backward()
    return [loss.detach()]


@loop("two forwards, then two backwards")
def _(model: Any, module: Any) -> Any:
    losses = [loss_of(model), loss_of(model, X.flip(0))]
    for loss in losses:
        loss.backward()
    return [loss.detach() for loss in losses]


@loop("a forward without a backward")
def _(model: Any, module: Any) -> Any:
    found = [model(X).detach()]
    out = model(X)
    return [*found, *trained(model), out.detach()]


@loop("retain_graph")
def _(model: Any, module: Any) -> Any:
    loss = loss_of(model)
    loss.backward(retain_graph=True)
    loss.backward()
    return [loss.detach()]


@loop("gradient penalty")
def _(model: Any, module: Any) -> Any:
    x = X.clone().requires_grad_()
    loss = loss_of(model, x)
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    (loss + gradient.pow(2).sum()).backward()
    return [x.grad, *trained(model)]


@loop("third derivatives")
def _(model: Any, module: Any) -> Any:
    x = X.clone().requires_grad_()
    loss = functional.softplus(model(x)).pow(3).mean()
    for _ in range(2):
        (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
        loss = gradient.pow(2).sum()
    loss.backward()
    return [x.grad]


@loop("backward to some inputs")
def _(model: Any, module: Any) -> Any:
    loss_of(model).backward(inputs=[module.fc.weight, module.b[0].weight])
    return []


@loop("an inner step, and through it")
def _(model: Any, module: Any) -> Any:
    weights = dict(model.named_parameters())
    inner = functional.cross_entropy(functional_call(model, weights, (X,)), Y)
    gradients = torch.autograd.grad(inner, list(weights.values()), create_graph=True)
    fast = {name: one - 0.1 * gradient for (name, one), gradient in zip(weights.items(), gradients, strict=True)}
    loss = functional.cross_entropy(functional_call(model, fast, (X.flip(0),)), Y)
    loss.backward()
    return [loss.detach()]


@loop("torch.func.jvp and vmap")
def _(model: Any, module: Any) -> Any:
    torch.func.replace_all_batch_norm_modules_(module)
    module.drop.p = 0.0
    out = torch.func.vmap(lambda x: model(x))(torch.stack([X, X.flip(0)]))
    out.square().sum().backward()
    return [out.detach(), *torch.func.jvp(lambda x: model(x), (X,), (X.flip(0),)), *trained(model)]


# -- what is around it -------------------------------------------------------------------------------------------------


def around(manager: Callable[[], Any]) -> Loop:
    def inside(model: Any, module: Any) -> Any:
        with manager():
            return trained(model)

    return inside


LOOPS["save_on_cpu around"] = around(torch.autograd.graph.save_on_cpu)
LOOPS["detect_anomaly"] = around(lambda: torch.autograd.set_detect_anomaly(True))
LOOPS["a profiler"] = around(lambda: torch.profiler.profile(profile_memory=True))


def checkpointed(model: Any, reentrant: bool) -> Any:
    x = X.clone().requires_grad_(reentrant)
    loss = functional.cross_entropy(checkpoint(model, x, use_reentrant=reentrant), Y)
    loss.backward()
    return [loss.detach(), x.grad if reentrant else x, *trained(model)]


LOOPS["a checkpoint around"] = lambda model, module: checkpointed(model, False)
LOOPS["a reentrant checkpoint around"] = lambda model, module: checkpointed(model, True)
LOOPS["DataParallel without a GPU"] = lambda model, module: trained(nn.DataParallel(model))


@loop("two threads")
def _(model: Any, module: Any) -> Any:
    losses: dict[int, Any] = {}

    def forward(number: int) -> None:
        losses[number] = loss_of(model, X[number * 4 : number * 4 + 4], Y[number * 4 : number * 4 + 4])

    model.eval()
    model.train()
    module.drop.p = 0.0
    threads = [threading.Thread(target=forward, args=(number,)) for number in range(2)]
    for one in threads:
        one.start()
        one.join()
    sum(losses.values()).backward()
    return [losses[0].detach(), losses[1].detach()]


# -- hooks -------------------------------------------------------------------------------------------------------------


@loop("hooks on the model")
def _(model: Any, module: Any) -> Any:
    found: list[Any] = []
    model.register_forward_pre_hook(lambda its, given: (given[0] * 2,))
    model.register_forward_hook(lambda its, given, out: out * 0.5)
    model.register_full_backward_hook(lambda its, into, out: found.append(out[0].clone()))
    return trained(model, [(x.requires_grad_(), y) for x, y in batches()]) + found


@loop("hooks that read and keep what parts make")
def _(model: Any, module: Any) -> Any:
    found: list[Any] = []
    for part in (module.stem, module.norms[0], module.fc):
        part.register_forward_hook(lambda its, given, out: found.append(out.detach().clone()))
    return trained(model) + found


@loop("hooks on outputs")
def _(model: Any, module: Any) -> Any:
    out = model(X)
    out.retain_grad()
    out.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
    functional.cross_entropy(out, Y).backward()
    return [out.grad]


# -- what goes wrong ---------------------------------------------------------------------------------------------------


def stopped(error: BaseException, in_backward: bool) -> Loop:
    def stop(*given: Any) -> Any:
        raise error

    def inside(model: Any, module: Any) -> Any:
        found = trained(model)
        part = module.a[1]
        hook = part.weight.register_hook(stop) if in_backward else part.register_forward_hook(stop)
        with pytest.raises(type(error)):
            loss_of(model).backward()
        error.__traceback__ = None  # which holds the frames of forward, and their maps
        hook.remove()
        model.zero_grad()
        return found + trained(model)

    return inside


LOOPS["an exception in forward"] = stopped(RuntimeError("out of memory"), in_backward=False)
LOOPS["an exception in backward"] = stopped(RuntimeError("out of memory"), in_backward=True)
LOOPS["Ctrl-C in forward"] = stopped(KeyboardInterrupt(), in_backward=False)
LOOPS["Ctrl-C in backward"] = stopped(KeyboardInterrupt(), in_backward=True)


@loop("inputs that the module cannot take")
def _(model: Any, module: Any) -> Any:
    with pytest.raises((AttributeError, TypeError)):
        model("nonsense")
    return trained(model)


@pytest.fixture(scope="module")
def plans() -> dict[str, Any]:
    torch.set_num_threads(1)
    network = refimpl.networks.from_torch(Branches().train(), SHAPE)
    return {policy: program_of(network, policy).decisions() for policy in POLICIES}


#: Each of these needs something of a plan that the others here do not; `make matrix` runs all.
KEPT = (
    "AdamW", "LBFGS, which calls forward several times", "SAM: two passes, weights moved between them",
    "autocast to float16, GradScaler, clipping", "channels_last module", "a smaller last batch",
    "training in eval mode", "no_grad and inference_mode in train mode", "freezing between",
    "state_dict loaded by assignment", "deepcopy, and the copy is trained", "tied weights",
    "siamese: two forwards, one backward", "two forwards, then two backwards", "a forward without a backward",
    "retain_graph", "third derivatives", "backward to some inputs", "torch.func.jvp and vmap", "save_on_cpu around",
    "a checkpoint around", "a reentrant checkpoint around", "two threads", "hooks on the model",
    "an exception in forward", "Ctrl-C in backward",
)  # fmt: skip


@pytest.mark.parametrize("name", some(LOOPS, *KEPT))
@nothing_left()
def test_a_loop_has_the_bits_of_plain_pytorch(name: str, plans: dict[str, Any]) -> None:
    torch.manual_seed(0)
    first = Branches().train()

    def ran(plan: Any) -> list[Any]:
        module = copy.deepcopy(first)
        model = module if plan is None else Planned(module, plan, transfers=DeferredTransfers())
        torch.manual_seed(1)
        found = [*LOOPS[name](model, module), *(weight.grad for weight in module.parameters())]
        assert list(model.state_dict()) == list(module.state_dict())
        assert plan is None or (model.last is None) == (name in OTHERS_FIRST)
        return [*found, *module.state_dict().values()]

    right = ran(None)
    for policy in POLICIES:
        for one, other in zip(right, ran(plans[policy]), strict=True):
            assert (one is None) == (other is None), policy
            assert one is None or torch.equal(one, other), policy
