"""The catalogue `own`: every choice is one that `kernels.fast.conv` accepts, and less workspace never changes a bit."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from kernels.fast import conv
from refimpl.machine import MACHINES
from refimpl.machine.catalogues import options
from refimpl.machine.convolution import Convolution
from refimpl.machine.cpu_costs import reference
from refimpl.machine.cpu_model import with_costs
from refimpl.machine.here import rough_cpu
from refimpl.network import Call
from tests.refimpl.machine.conv_calls import as_kernels_take_it, convolutions, passes

H100 = MACHINES["h100"]
CPU = with_costs(rough_cpu(), reference())


@given(calls=convolutions())
def test_every_choice_is_served_with_workspace_enough(calls: list[Call]) -> None:
    for call in calls:
        pass_, x, w, stride, pad, dilation = as_kernels_take_it(call)
        serves = conv.serves(x, w, stride, pad, dilation)
        choices = H100.choices(call)
        assert {choice.algorithm for choice in choices} == {
            name for name in serves if serves[name][pass_] == "yes" and name != "vector_direct"
        }
        on_cpu = CPU.choices(call)
        assert {choice.algorithm for choice in on_cpu} == {name for name in serves if serves[name][pass_] == "yes"}
        for choice in (*choices, *on_cpu):
            given = pass_, x, w, stride, pad, dilation, choice.algorithm
            assert conv.minimum_workspace_bytes(*given) <= choice.workspace_bytes <= conv.workspace_bytes(*given)


@pytest.mark.parametrize("algorithm", ["im2col", "winograd"])
@given(calls=convolutions())
def test_fewer_images_at_a_time_are_slower(algorithm: str, calls: list[Call]) -> None:
    for call in calls:
        menu = sorted(
            (choice.workspace_bytes, choice.seconds) for choice in H100.choices(call) if choice.algorithm == algorithm
        )
        seconds = [seconds for _, seconds in menu]
        assert seconds == sorted(seconds, reverse=True)


@pytest.mark.parametrize("index", range(3))
def test_every_choice_of_an_algorithm_gives_the_same_bits(index: int) -> None:
    call = passes((5, 3, 9, 8), 4, (3, 3), pad=(1, 1))[index]
    generator = np.random.default_rng(1)
    names = (("x", "w", "y"), ("dy", "w", "dx"), ("x", "dy", "dw"))[index]
    arrays = {name: generator.standard_normal(call.arguments[name].shape).astype(np.float32) for name in names}
    results: dict[str, np.ndarray] = {}
    for choice in H100.choices(call):
        workspace = np.full(choice.workspace_bytes // 4, np.nan, np.float32) if choice.workspace_bytes else None
        extra = {"b": None} if call.function == "conv.forward" else {}
        getattr(conv, as_kernels_take_it(call)[0])(
            **arrays, **extra, stride=(1, 1), pad=(1, 1), algorithm=choice.algorithm, workspace=workspace
        )
        result = arrays[names[-1]].copy()
        assert np.array_equal(results.setdefault(choice.algorithm, result), result), choice


def test_a_depthwise_layer_is_direct_and_wide_groups_are_matrix_products() -> None:
    """A tile's rows that no filter of a group fills are computed too; nothing takes less than its bytes take."""
    for groups, filters in ((96, 1), (32, 4), (6, 64)):
        for call in passes((8, groups * filters, 28, 28), groups * filters, (3, 3), pad=(1, 1), groups=groups):
            seconds: dict[str, float] = {}
            for choice in H100.choices(call):
                seconds.setdefault(choice.algorithm, choice.seconds)
            assert set(seconds) == {"direct", "implicit_gemm"}
            assert min(seconds.values()) > Convolution.of(call).nbytes / H100.bandwidth
            if filters != 4:
                assert (seconds["direct"] < seconds["implicit_gemm"]) == (filters == 1)


def test_work_counts_the_operations_of_the_direct_way_at_most() -> None:
    for call in passes((8, 16, 14, 14), 32, (3, 3), pad=(1, 1)):
        for option in options("own", call):
            flops = sum(work.flops for work in option.work)
            assert flops == (call.flops * 16 / 36 if option.algorithm == "winograd" else call.flops)
