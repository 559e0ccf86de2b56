"""What Python's names keep while a module's forward runs: `x` in `y = self.conv(x)` is alive until it is named anew.

Nobody else keeps these maps if backward does not need them, or a plan has let them go.
"""

from __future__ import annotations

from typing import Any

from refimpl.importing.torch_module import Example, imported_torch, quiet


def kept_by_names(module: Any, example: Any, autocast: str | None = None) -> int | None:
    """The most bytes that are alive while forward runs on fake tensors, where autograd keeps nothing.

    Args:
        module: a `torch.nn.Module`.
        example: what it is called with, or the shape of that (`refimpl.networks.from_torch`).
        autocast: the name of a type of numbers.

    Returns:
        Bytes; None: the module does not run on fake tensors.
    """
    torch = imported_torch(module)
    from refimpl.importing.recorded import as_it_trains
    from refimpl.torch.meter import Meter
    from refimpl.torch.private import FakeTensorMode

    its = Example.of(example)
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    device = next((one.device.type for one in state.values()), "cpu")
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    hooks = torch.autograd.graph.saved_tensors_hooks(lambda tensor: None, lambda nothing: nothing)
    try:
        with quiet(), as_it_trains(module, (), {}), torch.enable_grad(), mode:
            fakes = {
                name: torch.empty_strided(one.size(), one.stride(), dtype=one.dtype, device=one.device)
                for name, one in state.items()
            }
            for name, one in state.items():
                fakes[name].requires_grad_(one.requires_grad)
            given = [torch.zeros(shape, dtype=getattr(torch, dtype), device=device) for shape, dtype in its.inputs]
            named = {
                name: torch.zeros(shape, dtype=getattr(torch, dtype), device=device) for name, shape, dtype in its.named
            }
            casting = torch.autocast(device, autocast and getattr(torch, autocast), enabled=autocast is not None)
            with hooks, casting, Meter(()) as meter:
                torch.func.functional_call(module, fakes, tuple(given), named)
        return meter.peak
    except Exception:  # whatever the module's own code raises
        return None
