"""Solutions of notebook K1's exercises; its checks refuse the wrong ones.

In the notebook, after all of its cells: %run -i solutions/K1_a_convolution_is_a_kernel.py
"""


def operations_for_each_byte_solved(rows: int, columns: int, length: int) -> float:
    # 2 operations a product over 4 bytes a number; the length cancels, and a square is the best of all tiles.
    return 2 * rows * columns * length / (4 * (rows + columns) * length)


def only_rows_counted(rows: int, columns: int, length: int) -> float:
    return 2 * rows * columns / (4 * 2 * rows)


assert check_operations_for_each_byte(operations_for_each_byte_solved)
assert not check_operations_for_each_byte(only_rows_counted)


@kernel(block=64)
def bias_gradient_solved(dy: Floats, db: Floats, images: int, filters: int, area: int) -> None:
    part = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    k = cuda.blockIdx.x
    total = ZERO
    for n in range(images):
        for i in range(t, area, 64):
            total += dy[(n * filters + k) * area + i]
    part[t] = total
    cuda.syncthreads()
    half = 32
    while half > 0:
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        db[k] = part[0]


@kernel(block=64)
def bias_gradient_hasty(dy: Floats, db: Floats, images: int, filters: int, area: int) -> None:
    part = cuda.shared.array(64, np.float32)
    t = cuda.threadIdx.x
    k = cuda.blockIdx.x
    total = ZERO
    for n in range(images):
        for i in range(t, area, 64):
            total += dy[(n * filters + k) * area + i]
    part[t] = total
    half = 32
    while half > 0:  # no barrier before it
        if t < half:
            part[t] += part[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        db[k] = part[0]


assert check_bias_gradient(bias_gradient_solved)
assert not check_bias_gradient(bias_gradient_hasty)


@kernel(block=256)
def input_gradient_solved(
    dy: Floats, w: Floats, dx: Floats,
    images: int, channels: int, height: int, width: int, filters: int, size: int, pad: int,
) -> None:  # fmt: skip
    rows = height + 2 * pad - size + 1
    columns = width + 2 * pad - size + 1
    i = cuda.grid(1)
    if i < images * channels * height * width:
        v = i % width
        h = i // width % height
        c = i // (width * height) % channels
        n = i // (width * height * channels)
        total = ZERO
        for k in range(filters):
            for r in range(size):
                for s in range(size):
                    p = h + pad - r
                    q = v + pad - s
                    if 0 <= p and p < rows and 0 <= q and q < columns:
                        at_w = ((k * channels + c) * size + r) * size + s
                        total += w[at_w] * dy[((n * filters + k) * rows + p) * columns + q]
        dx[i] = total


@kernel(block=256)
def input_gradient_unguarded(
    dy: Floats, w: Floats, dx: Floats,
    images: int, channels: int, height: int, width: int, filters: int, size: int, pad: int,
) -> None:  # fmt: skip
    rows = height + 2 * pad - size + 1
    columns = width + 2 * pad - size + 1
    i = cuda.grid(1)
    if i < images * channels * height * width:
        v = i % width
        h = i // width % height
        c = i // (width * height) % channels
        n = i // (width * height * channels)
        total = ZERO
        for k in range(filters):
            for r in range(size):
                for s in range(size):  # no check whether the place is inside dy
                    at_dy = ((n * filters + k) * rows + h + pad - r) * columns + v + pad - s
                    total += w[((k * channels + c) * size + r) * size + s] * dy[at_dy]
        dx[i] = total


assert check_input_gradient(input_gradient_solved)
assert not check_input_gradient(input_gradient_unguarded)
