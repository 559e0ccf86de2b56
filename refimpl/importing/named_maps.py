"""What Python's names keep while forward runs: `x` in `y = self.conv(x)` is alive until it is the name of another map.

Nothing else keeps these maps if backward does not need them, or a plan has let them go.
"""

from __future__ import annotations

from typing import Any

from refimpl.importing.torch_module import Example, imported_torch, quiet


def kept_by_names(module: Any, example: Any, autocast: str | None = None) -> int | None:
    """The most bytes that are alive while forward runs on fake tensors, where autograd keeps nothing.

    Args:
        module: a `torch.nn.Module`; what its forward changes of it is as before in the end.
        example: what it is called with, or the shape of that (`refimpl.networks.from_torch`).
        autocast: the name of a type of numbers.

    Returns:
        Bytes; None: the module does not run on fake tensors.
    """
    torch = imported_torch(module)
    from refimpl.importing.recorded import as_it_trains
    from refimpl.torch.meter import Meter
    from refimpl.torch.private import FakeTensorMode

    its, numbers = Example.of(example), autocast and getattr(torch, autocast)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    device = next((one.device.type for one in state.values()), "cpu")
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda nothing: nothing)
    casting = torch.autocast(device, numbers, enabled=autocast is not None)
    try:
        with quiet(), as_it_trains(module, its.args, its.kwargs), FakeTensorMode(allow_non_fake_inputs=True):
            fakes = {name: torch.empty_like(one).requires_grad_(one.requires_grad) for name, one in state.items()}
            args, kwargs = its.zeros(torch, device)
            with torch.enable_grad(), hooks, casting, Meter(()) as meter:
                torch.func.functional_call(module, fakes, args, kwargs)
        return meter.peak
    except Exception:  # whatever the module's own code raises
        return None
