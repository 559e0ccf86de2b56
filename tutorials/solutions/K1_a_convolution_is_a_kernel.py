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


@cuda.jit
def input_gradient_solved(dy, w, dx, pad):
    i = cuda.grid(1)
    if i < dx.size:
        n, c, h, v = unravel(i, dx.shape)
        total = ZERO
        for k in range(w.shape[0]):
            for r in range(w.shape[2]):
                for s in range(w.shape[3]):
                    p = h + pad - r
                    q = v + pad - s
                    if 0 <= p < dy.shape[2] and 0 <= q < dy.shape[3]:
                        total += w[k, c, r, s] * dy[n, k, p, q]
        dx[n, c, h, v] = total


@cuda.jit
def input_gradient_unguarded(dy, w, dx, pad):
    i = cuda.grid(1)
    if i < dx.size:
        n, c, h, v = unravel(i, dx.shape)
        total = ZERO
        for k in range(w.shape[0]):
            for r in range(w.shape[2]):
                for s in range(w.shape[3]):  # no check whether the place is inside dy
                    total += w[k, c, r, s] * dy[n, k, h + pad - r, v + pad - s]
        dx[n, c, h, v] = total


assert check_input_gradient(input_gradient_solved)
assert not check_input_gradient(input_gradient_unguarded)
