"""A solution of lab A2: nine waits, moved to the right places; with these kernels and copies no script needs fewer."""

import argparse
import hashlib
import sys
from collections import defaultdict
from math import prod, sqrt

import numpy as np

from kernels.fast import conv, dropout, fc, pool, relu, sgd, softmax
from kernels.targets import gpu
from kernels.targets.shim import cuda

if reason := gpu.why_not_at_all():
    sys.exit(f"{reason.rstrip('.')}; without one: python -m kernels.targets.emulated {' '.join(sys.argv)}")

SEED, CLASSES, LEARNING = 0, 10, {"rate": 0.01, "momentum": 0.9, "decay": 0.0}

# -- Memory, streams, events
arena = cuda.device_array(6_807_040, np.uint8)  # 6.492 MiB of device memory
pinned = cuda.pinned_array(2_911_232, np.uint8)  # 2.776 MiB of host memory; copies to it run beside kernels
# None waits for another, unless told.  (Each of Numba's `cuda.stream()` waits for the default stream, and it for them.)
compute, memory = gpu.stream(), gpu.stream()
event = defaultdict(gpu.CudaEvent)  # by name; each is made when it is first used
state = {}  # what training keeps from one iteration to the next: name → array, first value, spread


def at(address, *shape, dtype=np.float32, of=arena):
    """The array at an address of the arena, or of pinned memory."""
    return of[address : address + np.dtype(dtype).itemsize * prod(shape)].view(dtype).reshape(shape)


def kept(name, shape, *addresses, first=0.0, spread=0.0):
    """A part of the state: a weight with its gradient and its momentum, or one array alone."""
    arrays = [at(address, *shape) for address in addresses]
    for one, array in zip((name, f"d({name})", f"momentum of {name}"), arrays, strict=False):
        state[one] = (array, first, spread) if one == name else (array, 0.0, 0.0)
    return arrays if len(arrays) > 1 else arrays[0]


# -- Tensors that stay as long as training does
conv1_w, d_conv1_w, conv1_w_momentum = kept("conv1.w", (16, 1, 5, 5), 0x0, 0x800, 0x1000, spread=sqrt(2 / 25))
conv1_b, d_conv1_b, conv1_b_momentum = kept("conv1.b", (16,), 0x1800, 0x1A00, 0x1C00)
conv2_w, d_conv2_w, conv2_w_momentum = kept("conv2.w", (32, 16, 5, 5), 0x1E00, 0xE600, 0x1AE00, spread=sqrt(2 / 400))
conv2_b, d_conv2_b, conv2_b_momentum = kept("conv2.b", (32,), 0x27600, 0x27800, 0x27A00)
fc3_w, d_fc3_w, fc3_w_momentum = kept("fc3.w", (128, 1568), 0x27C00, 0xEBC00, 0x1AFC00, spread=sqrt(2 / 1568))
fc3_b, d_fc3_b, fc3_b_momentum = kept("fc3.b", (128,), 0x273C00, 0x273E00, 0x274000)
fc4_w, d_fc4_w, fc4_w_momentum = kept("fc4.w", (10, 128), 0x274200, 0x275600, 0x276A00, spread=sqrt(1 / 128))
fc4_b, d_fc4_b, fc4_b_momentum = kept("fc4.b", (10,), 0x277E00, 0x278000, 0x278200)
labels = at(0x278400, 32, dtype=np.int32)
losses = at(0x278600, 32)

# -- Buffers in pinned memory
images_pinned = at(0x0, 32, 1, 28, 28, of=pinned)
labels_pinned = at(0x18800, 32, dtype=np.int32, of=pinned)
losses_pinned = at(0x18A00, 32, of=pinned)
conv1_pinned = at(0x18C00, 32, 16, 28, 28, of=pinned)
pool1_pinned = at(0x1A0C00, 32, 16, 14, 14, of=pinned)
conv2_pinned = at(0x202C00, 32, 32, 14, 14, of=pinned)


def train_step(iteration):
    # -- The batch ---------------------------------------------------------------------------------
    images = at(0x278E00, 32, 1, 28, 28)  # 98 KiB
    images.copy_to_device(images_pinned, stream=memory)  # batch: for conv1 forward
    event["images copied in"].record(memory)
    event["images copied in"].wait(compute)  # the labels are covered by the wait of step 3
    labels.copy_to_device(labels_pinned, stream=memory)  # batch: for softmax forward
    # -- Step 1: conv1 forward, 1.627 MiB live -----------------------------------------------------
    conv1_out = at(0x291600, 32, 16, 28, 28)  # 1.531 MiB, to be offloaded
    conv.forward(images, conv1_w, conv1_b, conv1_out, pad=(2, 2), algorithm="implicit_gemm", stream=compute)
    del images  # frees 98 KiB
    # -- Step 2: relu1 forward, 1.531 MiB live -----------------------------------------------------
    relu.forward(conv1_out, conv1_out, stream=compute)
    # -- Step 3: pool1 forward, 1.914 MiB live -----------------------------------------------------
    pool1_out = at(0x419600, 32, 16, 14, 14)  # 392 KiB, to be offloaded
    pool.forward(conv1_out, pool1_out, window=(2, 2), stride=(2, 2), stream=compute)
    event["pool1 forward"].record(compute)
    event["pool1 forward"].wait(memory)
    conv1_out.copy_to_host(conv1_pinned, stream=memory)  # offload, vdnn-all: an input of pool1
    event["conv1 copied out"].record(memory)
    event["conv1 copied out"].wait(compute)  # conv.forward writes conv2_out over conv1_out
    del conv1_out  # frees 1.531 MiB
    # -- Step 4: conv2 forward, 1.148 MiB live -----------------------------------------------------
    conv2_out = at(0x278E00, 32, 32, 14, 14)  # 784 KiB, to be offloaded
    conv.forward(pool1_out, conv2_w, conv2_b, conv2_out, pad=(2, 2), algorithm="implicit_gemm", stream=compute)
    pool1_out.copy_to_host(pool1_pinned, stream=memory)  # offload, vdnn-all: an input of conv2
    del pool1_out  # frees 392 KiB
    # -- Step 5: relu2 forward, 784 KiB live -------------------------------------------------------
    relu.forward(conv2_out, conv2_out, stream=compute)
    # -- Step 6: pool2 forward, 980 KiB live -------------------------------------------------------
    pool2_out = at(0x33CE00, 32, 32, 7, 7)  # 196 KiB
    pool.forward(conv2_out, pool2_out, window=(2, 2), stride=(2, 2), stream=compute)
    event["pool2 forward"].record(compute)
    event["pool2 forward"].wait(memory)
    conv2_out.copy_to_host(conv2_pinned, stream=memory)  # offload, vdnn-all: an input of pool2
    event["conv2 copied out"].record(memory)
    event["conv2 copied out"].wait(compute)  # fc.forward writes fc3_out over conv2_out
    del conv2_out  # frees 784 KiB
    # -- Step 7: fc3 forward, 212 KiB live ---------------------------------------------------------
    fc3_out = at(0x278E00, 32, 128)  # 16 KiB
    fc.forward(pool2_out, fc3_w, fc3_b, fc3_out, stream=compute)
    # -- Step 8: relu3 forward, 212 KiB live -------------------------------------------------------
    relu.forward(fc3_out, fc3_out, stream=compute)
    # -- Step 9: drop3 forward, 228 KiB live -------------------------------------------------------
    drop3_out = at(0x27CE00, 32, 128)  # 16 KiB
    dropout.forward(fc3_out, drop3_out, probability=0.25, seed=SEED, layer=9, iteration=iteration, stream=compute)
    # -- Step 10: fc4 forward, 229.2 KiB live ------------------------------------------------------
    fc4_out = at(0x280E00, 32, 10)  # 1.5 KiB
    fc.forward(drop3_out, fc4_w, fc4_b, fc4_out, stream=compute)
    # -- Step 11: softmax forward, 230.5 KiB live --------------------------------------------------
    softmax_out = at(0x281400, 32, 10)  # 1.5 KiB
    softmax.forward(fc4_out, softmax_out, stream=compute)
    softmax.cross_entropy(softmax_out, labels, losses, stream=compute)
    del fc4_out  # frees 1.5 KiB
    # -- Step 12: softmax backward, 1013 KiB live --------------------------------------------------
    conv2_out = at(0x36DE00, 32, 32, 14, 14)  # 784 KiB
    conv2_out.copy_to_device(conv2_pinned, stream=memory)  # prefetch: for pool2 backward
    softmax.backward(softmax_out, labels, softmax_out, stream=compute)
    # -- Step 13: fc4 backward, 1.388 MiB live -----------------------------------------------------
    pool1_out = at(0x281A00, 32, 16, 14, 14)  # 392 KiB
    pool1_out.copy_to_device(pool1_pinned, stream=memory)  # prefetch: for conv2 backward
    d_drop3 = at(0x2E3A00, 32, 128)  # 16 KiB
    fc.backward_filter(drop3_out, softmax_out, d_fc4_w, stream=compute)
    fc.backward_data(softmax_out, fc4_w, d_drop3, stream=compute)
    fc.backward_bias(softmax_out, d_fc4_b, stream=compute)
    sgd.update(fc4_w, d_fc4_w, fc4_w_momentum, **LEARNING, stream=compute)
    sgd.update(fc4_b, d_fc4_b, fc4_b_momentum, **LEARNING, stream=compute)
    del drop3_out, softmax_out  # frees 17.5 KiB
    # -- Step 14: drop3 backward, 1.387 MiB live ---------------------------------------------------
    d_fc3 = at(0x27CE00, 32, 128)  # 16 KiB
    dropout.backward(d_drop3, d_fc3, probability=0.25, seed=SEED, layer=9, iteration=iteration, stream=compute)
    del d_drop3  # frees 16 KiB
    # -- Step 15: relu3 backward, 1.371 MiB live ---------------------------------------------------
    relu.backward(fc3_out, d_fc3, d_fc3, stream=compute)
    del fc3_out  # frees 16 KiB
    # -- Step 16: fc3 backward, 1.547 MiB live -----------------------------------------------------
    d_pool2 = at(0x2E3A00, 32, 32, 7, 7)  # 196 KiB
    fc.backward_filter(pool2_out, d_fc3, d_fc3_w, stream=compute)
    fc.backward_data(d_fc3, fc3_w, d_pool2, stream=compute)
    fc.backward_bias(d_fc3, d_fc3_b, stream=compute)
    sgd.update(fc3_w, d_fc3_w, fc3_w_momentum, **LEARNING, stream=compute)
    sgd.update(fc3_b, d_fc3_b, fc3_b_momentum, **LEARNING, stream=compute)
    event["pool1 copied in"].record(memory)
    event["pool1 copied in"].wait(compute)
    del d_fc3  # frees 16 KiB
    # -- Step 17: pool2 backward, 2.297 MiB live ---------------------------------------------------
    d_conv2 = at(0x431E00, 32, 32, 14, 14)  # 784 KiB
    pool.backward(conv2_out, pool2_out, d_pool2, d_conv2, window=(2, 2), stride=(2, 2), stream=compute)
    del pool2_out, d_pool2  # frees 392 KiB
    # -- Step 18: relu2 backward, 1.914 MiB live ---------------------------------------------------
    relu.backward(conv2_out, d_conv2, d_conv2, stream=compute)
    del conv2_out  # frees 784 KiB
    # -- Step 19: conv2 backward, 3.062 MiB live ---------------------------------------------------
    conv1_out = at(0x4F5E00, 32, 16, 28, 28)  # 1.531 MiB
    conv1_out.copy_to_device(conv1_pinned, stream=memory)  # prefetch: for pool1 backward
    d_pool1 = at(0x2E3A00, 32, 16, 14, 14)  # 392 KiB
    conv.backward_filter(pool1_out, d_conv2, d_conv2_w, pad=(2, 2), algorithm="implicit_gemm", stream=compute)
    conv.backward_data(d_conv2, conv2_w, d_pool1, pad=(2, 2), algorithm="implicit_gemm", stream=compute)
    conv.backward_bias(d_conv2, d_conv2_b, stream=compute)
    sgd.update(conv2_w, d_conv2_w, conv2_w_momentum, **LEARNING, stream=compute)
    sgd.update(conv2_b, d_conv2_b, conv2_b_momentum, **LEARNING, stream=compute)
    event["conv1 copied in"].record(memory)
    event["conv1 copied in"].wait(compute)  # pool.backward reads conv1_out
    del d_conv2  # frees 784 KiB
    # -- Step 20: pool1 backward, 3.828 MiB live at the peak ---------------------------------------
    d_conv1 = at(0x345A00, 32, 16, 28, 28)  # 1.531 MiB
    pool.backward(conv1_out, pool1_out, d_pool1, d_conv1, window=(2, 2), stride=(2, 2), stream=compute)
    event["pool1 backward"].record(compute)
    event["pool1 backward"].wait(memory)
    del pool1_out, d_pool1  # frees 784 KiB
    # -- Step 21: relu1 backward, 3.158 MiB live ---------------------------------------------------
    images = at(0x4CDA00, 32, 1, 28, 28)  # 98 KiB
    images.copy_to_device(images_pinned, stream=memory)  # prefetch: for conv1 backward
    relu.backward(conv1_out, d_conv1, d_conv1, stream=compute)
    event["images copied in"].record(memory)
    event["images copied in"].wait(compute)  # conv.backward_filter reads images
    del conv1_out  # frees 1.531 MiB
    # -- Step 22: conv1 backward, 1.627 MiB live ---------------------------------------------------
    conv.backward_filter(images, d_conv1, d_conv1_w, pad=(2, 2), algorithm="direct", stream=compute)
    conv.backward_bias(d_conv1, d_conv1_b, stream=compute)
    sgd.update(conv1_w, d_conv1_w, conv1_w_momentum, **LEARNING, stream=compute)
    sgd.update(conv1_b, d_conv1_b, conv1_b_momentum, **LEARNING, stream=compute)
    del images, d_conv1  # frees 1.627 MiB
    losses.copy_to_host(losses_pinned, stream=memory)  # result


def start(given):
    """Fill the state: from arrays by name, or with the first values, drawn ones by a generator of each array's own."""
    for name, (array, first, spread) in state.items():
        key = hashlib.blake2b(f"{SEED}/{name}".encode(), digest_size=16).digest()
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
        values = random.standard_normal(array.shape, np.float32) * np.float32(spread) if spread else first
        array.copy_to_device(given[name] if given else np.full(array.shape, values, np.float32))
    gpu.synchronize()


def train(images, labels, steps):
    """Learn from batch after batch of the arrays, again from their beginning at their end; yields the mean losses."""
    batch, shape = len(images_pinned), images_pinned.shape[1:]
    if images.shape[1:] != shape or len(images) < batch or not 0 <= labels.min() <= labels.max() < CLASSES:
        sys.exit(f"give at least {batch} images of shape {shape}, with labels from 0 to {CLASSES - 1}")
    for iteration in range(steps):
        first = iteration % (len(images) // batch) * batch
        images_pinned[:], labels_pinned[:] = images[first : first + batch], labels[first : first + batch]
        train_step(iteration)
        gpu.synchronize()
        yield float(losses_pinned.mean(dtype=np.float64))


if __name__ == "__main__":
    command = argparse.ArgumentParser()
    command.add_argument("data", nargs="?", help="an .npz file with images and labels (default: one drawn batch)")
    command.add_argument("--steps", type=int, default=10)
    command.add_argument("--start", metavar="FILE", help="an .npz file: a state, or a checkpoint (default: drawn)")
    command.add_argument("--save", metavar="FILE", help="an .npz file for the last state")
    given = command.parse_args()
    start(np.load(given.start) if given.start else None)
    images = np.random.default_rng(SEED).standard_normal(images_pinned.shape, np.float32)
    data = np.load(given.data) if given.data else {"images": images, "labels": np.arange(len(images)) % CLASSES}
    for iteration, loss in enumerate(train(data["images"], data["labels"], given.steps)):
        print(f"iteration {iteration}: loss {loss!r}", flush=True)
    if given.save:
        np.savez(given.save, **{name: array.copy_to_host() for name, (array, _, _) in state.items()})
