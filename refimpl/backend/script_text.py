"""The text of a script that trains by itself, around the lines that follow from its program: templates."""

from __future__ import annotations

ABOUT = """`train_step` has the plan's steps one after another. Kernels run on the stream `compute`, copies on $movers.
A tensor has its name from `at(address, shape)`, where the plan allocates its bytes in the arena, to `del`, where it
frees them: `del x` calls nothing on the device, it says that later tensors may have x's bytes. Work given to a stream
after `event[...].wait(stream)` starts when what was recorded there has happened; a comment says why, and also where no
wait is needed. A stream runs its own work in order. `--help` says what the script can be given. $without_gpu
Written by: $command"""

#: How a script runs without a GPU, and what it imports, for the kernels of `kernels.fast` and for plain ones.
WITHOUT_GPU = "`python -m kernels.targets.emulated SCRIPT` runs it without a GPU, slowly, with every access checked."
CUDA = """${driver}$families
from kernels.targets.shim import cuda
from kernels.targets import $targets

if reason := gpu.why_not_at_all():
    sys.exit(f"{reason.rstrip('.')}; without one: python -m kernels.targets.emulated {' '.join(sys.argv)}")
"""
PLAIN_WITHOUT_GPU = "It needs NumPy and Numba alone; NUMBA_ENABLE_CUDASIM=1 runs it without a GPU, very slowly."
PLAIN_CUDA = """from numba import cuda

if not cuda.is_available():
    sys.exit(f"there is no GPU; without one: NUMBA_ENABLE_CUDASIM=1 python {' '.join(sys.argv)}")
"""

HEAD = '''"""$title

$about
"""

$imports
import numpy as np
$cuda
SEED, LEARNING = $seed, $learning

# -- Memory, streams, events
arena = cuda.device_array($arena, np.uint8)  # $arena_size of device memory
pinned = cuda.pinned_array($pinned, np.uint8)  # $pinned_size of host memory; copies to it run beside kernels
# None waits for another, unless told.  $default_stream
$streams = $made
event = defaultdict($event)  # by name; each is made when it is first used
state = {}  # what training keeps from one iteration to the next: name → array, first value, spread


def at(address, *shape, dtype=np.float32, of=arena):
    """The array at an address of the arena, or of pinned memory."""
    return of[address : address + np.dtype(dtype).itemsize * prod(shape)].view(dtype).reshape(shape)


def kept(name, shape, *addresses, first=0.0, spread=0.0):
    """A part of the state: a weight with its gradient and $kept, or one array alone."""
    arrays = [at(address, *shape) for address in addresses]
    for one, array in zip((name, f"d({name})", $states), arrays):
        state[one] = (array, first, spread) if one == name else (array, 0.0, 0.0)
    return arrays if len(arrays) > 1 else arrays[0]
$at_home$kernels$table
$host_thread
# -- Tensors that stay as long as training does
$residents

# -- Buffers in pinned memory
$buffers


def train_step(iteration):
'''

AT_HOME = '''

def at_home(name, address, *shape):
    """A part of the state that is in pinned memory from one iteration to the next."""
    state[name] = (at(address, *shape, of=pinned), 0.0, 0.0)
    return state[name][0]
'''

#: How a part of the state is filled and read: where all is on the device, and where some is in pinned memory.
FILL = "array.copy_to_device(given[name] if given else np.full(array.shape, values, np.float32))"
READ = "array.copy_to_host()"
FILL_AT_HOME = """values = given[name] if given else np.full(array.shape, values, np.float32)
        np.copyto(array, values) if isinstance(array, np.ndarray) else array.copy_to_device(values)"""
READ_AT_HOME = "np.array(array) if isinstance(array, np.ndarray) else array.copy_to_host()"

TABLE = '''

def table(address, *numbers):
    """Whole numbers that nothing changes."""
    array = at(address, len(numbers), dtype=np.int32)
    array.copy_to_device(np.array(numbers, np.int32))
    return array
'''

HOST_THREAD = '''
# -- The host's thread
host = ThreadPoolExecutor(1, initializer=cuda.current_context)  # one thread: its work is done in order
pieces = []  # what it was given in this iteration
store = {}  # name → a $packed map
counter = cuda.pinned_array(1, np.uint32)  # how many of the records in its work it has reached


def on_host(work, *given):
    """Give work to the thread; this does not wait for it."""
    pieces.append(host.submit(work, *given))


$functions

def count(number):
    """A record in the thread's work, number 1, 2, ...: streams can wait for it."""
    if emulated.active():
        emulated.pass_on(counter.ctypes.data + (number << 48))  # its checks learn what happened before
    counter[0] = number


def hold(stream, number):
    """Work that is given to the stream from now on starts when the thread has counted so far."""
    at_least = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ
    (status,) = driver.cuStreamWaitValue32(int(stream.handle), counter.ctypes.data, number, at_least)
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"the GPU cannot wait for the host's thread: {status.name}")

'''

START = '''


${schedule}def start(given):
    """Fill the state: from arrays by name, or with the first values, drawn ones by a generator of each array's own."""
    for name, (array, first, spread) in state.items():
        key = hashlib.blake2b(f"{SEED}/{name}".encode(), digest_size=16).digest()
        random = np.random.Generator(np.random.Philox(key=int.from_bytes(key, "little")))
        values = random.standard_normal(array.shape, np.float32) * np.float32(spread) if spread else first
        $fill
    cuda.synchronize()


'''

TRAIN = '''def train(data, steps):
    """Learn from batch after batch of the arrays, again from their beginning at their end; yields the losses' sums."""
    batch, images = min(map(len, GIVEN.values())), min(len(data[name]) for name in GIVEN)
    for name, pinned in GIVEN.items():
        array, (classes, ignored) = data[name], CLASSES.get(name, (0, None))
        right = not classes or ((array == ignored) | (0 <= array) & (array < classes)).all()
        if array.shape[1:] != pinned.shape[1:] or len(array) < batch or not right:
            of = f", from 0 to {classes - 1}" if classes else ""
            sys.exit(f"give at least {batch} of {name}, each of shape {pinned.shape[1:]}{of}")
    for iteration in range(steps):
        first = iteration % (images // batch) * batch
        for name, pinned in GIVEN.items():
            pinned[:] = data[name][first : first + batch]
${scheduled}        train_step(iteration)
${finish}        cuda.synchronize()
        yield sum(weight * float(losses.mean(dtype=np.float64)) for losses, weight in LOSSES.values())


if __name__ == "__main__":
    command = argparse.ArgumentParser()
    command.add_argument("data", nargs="?", help=f"an .npz file with {', '.join(GIVEN)} (default: one drawn batch)")
    command.add_argument("--steps", type=int, default=10)
    command.add_argument("--start", metavar="FILE", help="an .npz file: a state, or a checkpoint (default: drawn)")
    command.add_argument("--save", metavar="FILE", help="an .npz file for the last state")
    given = command.parse_args()
    start(np.load(given.start) if given.start else None)
    random = np.random.default_rng(SEED)
    data = dict(np.load(given.data)) if given.data else {
        name: random.integers(0, CLASSES[name][0], pinned.shape) if name in CLASSES
        else random.random(pinned.shape, np.float32)
        for name, pinned in GIVEN.items()
    }
    for iteration, loss in enumerate(train(data, given.steps)):
        print(f"iteration {iteration}: loss {loss!r}", flush=True)
    if given.save:
        np.savez(given.save, **{name: $read for name, (array, _, _) in state.items()})
'''
