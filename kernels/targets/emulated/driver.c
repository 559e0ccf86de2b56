/* A CUDA driver that computes without a GPU: what libcuda.so.1 offers, as far as numba-cuda and cuda.core call it.
 *
 * Device memory is memory of the host.  Work is queued by stream and done in an order that the streams, events and wait
 * values allow; by default as late as possible, when something waits for it.  A launch runs the kernel's PTX, which
 * Python has translated to C and registered for the image that is loaded (`emulated_register`).  Every access is checked.
 *
 *   memory.h   allocations        order.h   which accesses nothing orders        work.h   streams and their work
 *   journal.h  what tests of the host's code may ask */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "abi.h"

typedef int Result;
typedef uint64_t Pointer;
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, ILLEGAL_ADDRESS = 700, TIMEOUT = 702
};
enum { DRIVER_VERSION = 13000, MULTIPROCESSORS = 132, MOST_SHARED = 48 * 1024 };

#include "memory.h"
#include "order.h"
#include "work.h"
#include "journal.h"

#define LOCKED(...) (pthread_mutex_lock(&lock), __VA_ARGS__, pthread_mutex_unlock(&lock))

/* --- Device and context ----------------------------------------------------------------------------------------------- */

static int context, devices = 1; /* one context for all: several GPUs have one memory here */
static __thread void *current_context;

Result cuInit(unsigned flags) {
    LOCKED(!lane_used[0] ? legacy.lane = new_lane() : 0);
    return SUCCESS;
}
Result cuDriverGetVersion(int *version) { return *version = DRIVER_VERSION, SUCCESS; }
Result cuDeviceGetCount(int *count) { return *count = devices, SUCCESS; }
Result cuDeviceGet(int *device, int number) { return *device = number, SUCCESS; }
Result cuDeviceCanAccessPeer(int *can, int device, int peer) { return *can = 1, SUCCESS; }
Result cuDeviceGetName(char *name, int length, int device) { return snprintf(name, length, "emulated GPU"), SUCCESS; }
Result cuDeviceGetUuid_v2(char *uuid, int device) { return memset(uuid, 7, 16), SUCCESS; }
Result cuDeviceTotalMem_v2(size_t *bytes, int device) { return *bytes = memory_total, SUCCESS; }
Result cuDeviceGetAttribute(int *value, int attribute, int device) { /* an H100's, and 1 for what is not listed */
    static const int known[][2] = {
        {1, 1024}, {2, 1024}, {3, 1024},               /* threads of a block, and its x and y */
        {4, 64}, {5, 2147483647}, {6, 65535}, {7, 65535}, /* z of a block; x, y and z of a grid */
        {8, MOST_SHARED}, {97, MOST_SHARED}, {10, 32}, /* shared bytes of a block, and at most; threads of a warp */
        {13, 1000000}, {36, 1000000}, {37, 5120},      /* clocks in kHz, width of the bus */
        {16, MULTIPROCESSORS}, {38, 50 << 20}, {39, 2048},
        {75, 9}, {76, 0}, {115, 0},                    /* compute capability; no pools of memory */
        {81, 228 * 1024}, {82, 65536},                 /* shared bytes and registers of a multiprocessor */
    };
    *value = 1;
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) if (known[i][0] == attribute) *value = known[i][1];
    return SUCCESS;
}
Result cuDevicePrimaryCtxRetain(void **out, int device) { return *out = &context, SUCCESS; }
Result cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
Result cuCtxGetCurrent(void **out) { return *out = current_context, SUCCESS; }
Result cuCtxSetCurrent(void *given) { return current_context = given, SUCCESS; }
Result cuCtxPushCurrent_v2(void *given) { return current_context = given, SUCCESS; }
Result cuCtxPopCurrent_v2(void **out) { return *out = current_context, SUCCESS; }
Result cuCtxGetDevice(int *device) { return *device = 0, SUCCESS; }
Result cuCtxEnablePeerAccess(void *peer, unsigned flags) { return SUCCESS; }
Result cuCtxSynchronize(void) {
    Result r;
    LOCKED(r = drain());
    return r;
}
Result cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }

/* --- Memory ------------------------------------------------------------------------------------------------------------- */

Result cuMemGetInfo_v2(size_t *available, size_t *total) {
    return *available = memory_total - memory_used, *total = memory_total, SUCCESS;
}
/* On the model's clock an allocation or a free that was given seconds stalls all streams for that long. */
static void hold(void) {
    if (next_work.seconds <= 0) return;
    Work *w = make(IDLE, NONE);
    w->done = 1, w->serial = ++serial;
    issue(w), settle(), release_work(w);
}
Result cuMemAlloc_v2(Pointer *pointer, size_t bytes) {
    pthread_mutex_lock(&lock);
    *pointer = !bytes || memory_used + bytes > memory_total ? 0 : take(bytes, 0);
    hold();
    allocations++;
    pthread_mutex_unlock(&lock);
    return *pointer ? SUCCESS : bytes ? OUT_OF_MEMORY : INVALID_VALUE;
}
static Result give_back(uint64_t address, int pinned) {
    pthread_mutex_lock(&lock);
    Result r = drain();
    Block *block = find_block(address, 0, pinned);
    if (block && block->lo == address) forget(block->lo, block->hi), release_block(block);
    else find("%s at %#llx is freed, which is not allocated", pinned ? "pinned memory" : "device memory", (unsigned long long)address), r = INVALID_VALUE;
    hold();
    pthread_mutex_unlock(&lock);
    return r;
}
Result cuMemFree_v2(Pointer pointer) { return give_back(pointer, 0); }
Result cuMemFreeHost(void *pointer) { return give_back((uint64_t)pointer, 1); }
Result cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    LOCKED(*out = (void *)take(bytes, 1), allocations++);
    return *out ? SUCCESS : OUT_OF_MEMORY;
}
/* What an address is in: 1 a context, 2 a kind of memory, 3 and 4 its address on either side, 8 whether managed, 9 a device. */
Result cuPointerGetAttribute(void *value, int attribute, Pointer pointer) {
    int on_device, pinned;
    LOCKED(on_device = find_block(pointer, 1, 0) != NULL, pinned = find_block(pointer, 1, 1) != NULL);
    if (!on_device && !pinned) return INVALID_VALUE;
    switch (attribute) {
    case 1: *(void **)value = &context; break;
    case 2: *(unsigned *)value = on_device ? 2 : 1; break;
    case 3: case 4: *(Pointer *)value = pointer; break;
    case 8: case 9: *(unsigned *)value = 0; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}
/* A copy of pageable memory is not asynchronous: what goes in is read at once, what comes out is there on return. */
static Result copy(enum Kind kind, uint64_t to, uint64_t from, size_t bytes, Stream *stream, int wait) {
    Stream *s = as_stream(stream);
    Work *w = make(kind, kind == COPY_IN ? IN : kind == COPY_OUT ? OUT : COMPUTE);
    int pinned;
    w->to = to, w->from = from, w->bytes = bytes;
    LOCKED(pinned = kind == COPY_ON || find_block(kind == COPY_IN ? from : to, bytes, 1) != NULL);
    if (kind == COPY_IN && !pinned) w->staged = memcpy(malloc(bytes + 1), (void *)from, bytes);
    return wait || (kind == COPY_OUT && !pinned) ? given_and_done(s, w) : given(s, w);
}
Result cuMemcpyHtoD_v2(Pointer to, const void *from, size_t n) { return copy(COPY_IN, to, (uint64_t)from, n, NULL, 1); }
Result cuMemcpyDtoH_v2(void *to, Pointer from, size_t n) { return copy(COPY_OUT, (uint64_t)to, from, n, NULL, 1); }
Result cuMemcpyDtoD_v2(Pointer to, Pointer from, size_t n) { return copy(COPY_ON, to, from, n, NULL, 0); }
Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t n, Stream *s) { return copy(COPY_IN, to, (uint64_t)from, n, s, 0); }
Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t n, Stream *s) { return copy(COPY_OUT, (uint64_t)to, from, n, s, 0); }
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t n, Stream *s) { return copy(COPY_ON, to, from, n, s, 0); }
Result cuMemcpyPeerAsync(Pointer to, void *there, Pointer from, void *here, size_t n, Stream *s) { return copy(COPY_ON, to, from, n, s, 0); }
Result cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, Stream *s) {
    Work *w = make(SET, COMPUTE);
    w->to = to, w->from = value, w->bytes = bytes;
    return given(as_stream(s), w);
}
Result cuMemsetD8_v2(Pointer to, unsigned char value, size_t bytes) { return cuMemsetD8Async(to, value, bytes, NULL); }

/* --- Streams and events --------------------------------------------------------------------------------------------------- */

Result cuStreamCreateWithPriority(Stream **out, unsigned flags, int priority) {
    Stream *s = NULL;
    Result r = SUCCESS;
    pthread_mutex_lock(&lock);
    for (int i = 1; i < stream_count && !s; i++) if (streams[i]->dead && !streams[i]->head) s = streams[i];
    if (!s) {
        int lane = new_lane();
        if (lane < 0) find("the emulated GPU has no more than %d streams and threads of the host", LANES), r = OUT_OF_MEMORY;
        else s = calloc(1, sizeof *s), s->lane = lane, streams[stream_count++] = s;
    }
    if (s) s->flags = flags, s->dead = 0, s->priority = draw() % 1000000;
    *out = s;
    pthread_mutex_unlock(&lock);
    return r;
}
Result cuStreamCreate(Stream **out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
Result cuStreamDestroy_v2(Stream *s) {
    LOCKED(as_stream(s)->dead = as_stream(s) != &legacy);
    return SUCCESS;
}
Result cuStreamGetFlags(Stream *s, unsigned *flags) { return *flags = as_stream(s)->flags, SUCCESS; }
Result cuStreamGetPriority(Stream *s, int *priority) { return *priority = 0, SUCCESS; }
Result cuStreamGetCtx(Stream *s, void **out) { return *out = &context, SUCCESS; }
Result cuStreamSynchronize(Stream *stream) {
    Result r = SUCCESS;
    slow();
    pthread_mutex_lock(&lock);
    if (as_stream(stream) == &legacy) r = drain();
    else if (stream->last) r = until(stream->last);
    pthread_mutex_unlock(&lock);
    return r ? r : status();
}
/* Whether a piece of work is done.  Who asks again and again gets on: if it is not, something is done. */
static Result asked(Work *w) {
    if (!w || w->done) {
        if (w) learn(&w->clock);
        return status();
    }
    Stream *next = busy ? NULL : choose(w->stream);
    if (next) step(next);
    return NOT_READY;
}
Result cuStreamQuery(Stream *stream) {
    Result r;
    LOCKED(r = asked(as_stream(stream)->last));
    return r;
}
/* Whether an event may be used.  A destroyed one is kept, so that its use is found whatever has become of its memory. */
static Result usable(const Event *event, const char *how) {
    if (event->dead) find("an event that has been destroyed is %s", how);
    return event->dead ? INVALID_HANDLE : SUCCESS;
}
Result cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    Work *w = make(WAIT, NONE);
    Result r;
    w->seconds = 0;
    LOCKED(r = usable(event, "waited for by a stream"), wait_for(w, event->record), give(as_stream(stream), w));
    return r;
}
static Result value_work(enum Kind kind, Stream *stream, Pointer place, uint32_t value, unsigned flags) {
    Work *w = make(kind, NONE);
    w->to = place, w->from = value, w->flags = flags, w->seconds = 0;
    return given(as_stream(stream), w);
}
Result cuStreamWaitValue32_v2(Stream *s, Pointer place, uint32_t value, unsigned flags) { return value_work(WAIT_VALUE, s, place, value, flags); }
Result cuStreamWriteValue32_v2(Stream *s, Pointer place, uint32_t value, unsigned flags) { return value_work(WRITE_VALUE, s, place, value, flags); }
Result cuLaunchHostFunc(Stream *stream, void (*call)(void *), void *data) {
    Work *w = make(CALL, NONE);
    w->call = call, w->data = data;
    return given(as_stream(stream), w);
}
Result cuEventCreate(Event **event, unsigned flags) {
    return *event = calloc(1, sizeof **event), (*event)->flags = flags, SUCCESS;
}
Result cuEventDestroy_v2(Event *event) {
    Result r;
    LOCKED(r = usable(event, "destroyed"), release_work(event->record), event->record = NULL, event->dead = 1);
    return r;
}
Result cuEventRecord(Event *event, Stream *stream) {
    Work *w = make(RECORD, NONE);
    Result r;
    w->seconds = 0;
    LOCKED(r = usable(event, "recorded"), give(as_stream(stream), w), release_work(event->record), event->record = keep(w));
    return r;
}
Result cuEventQuery(Event *event) {
    Result r;
    LOCKED(r = usable(event, "asked"), r = r ? r : asked(event->record));
    return r;
}
Result cuEventSynchronize(Event *event) {
    Result r;
    slow();
    LOCKED(r = usable(event, "waited for by the host"), r = r ? r : event->record ? until(event->record) : status());
    return r;
}
/* On the model's clock; known once everything that was given before is done. */
Result cuEventElapsedTime_v2(float *milliseconds, Event *from, Event *to) {
    Work *a = from->record, *b = to->record;
    if (!a || !b) return INVALID_HANDLE;
    if (!a->done || !b->done) return NOT_READY;
    pthread_mutex_lock(&lock);
    Result r = SUCCESS;
    while (issued_first && (issued_first->serial <= a->serial || issued_first->serial <= b->serial) && !r)
        if (issued_first->done) settle();
        else r = until(issued_first);
    *milliseconds = (float)((b->end - a->end) * 1e3);
    pthread_mutex_unlock(&lock);
    return r;
}

/* --- Code and launches ------------------------------------------------------------------------------------------------------ */

/* An image is what a library is loaded from: machine code, all bytes of it.  A kernel is known by its image and its name
 * in it; the name alone says nothing, since compilers give one name to kernels of different libraries. */
typedef struct { char *bytes; size_t length; Code **codes; int count; } Image;
static Image **images;
static int image_count;

static Image *image_of(const char *bytes, size_t length) { /* length: 0 where it is not known */
    for (int i = 0; i < image_count; i++) {
        size_t at = 0;
        if (length && images[i]->length != length) continue;
        while (at < images[i]->length && bytes[at] == images[i]->bytes[at]) at++; /* no byte is read after one that differs */
        if (at == images[i]->length) return images[i];
    }
    return NULL;
}
static Code *code_of(const Image *image, const char *entry) {
    for (int i = 0; image && i < image->count; i++) if (!strcmp(image->codes[i]->entry, entry)) return image->codes[i];
    return NULL;
}
static const KernelInfo *info_of(const char *path) {
    void *object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return object ? dlsym(object, "emulated_kernel") : NULL;
}
/* A translated kernel of an image: the libraries that it was compiled to, without and with the search for races; array i
 * is at an offset among the arguments, and has axes, and item_bytes if MLIR lays it out (else 0).  Register it before the image is loaded, or again afterwards. */
int emulated_register(const char *bytes, uint64_t length, const char *entry, const char *name, const char *path, const char *races_path,
                      int array_count, const unsigned *offsets, const unsigned *axes, const unsigned *item_bytes,
                      const char *const *array_names) {
    const KernelInfo *info = info_of(path), *races = strcmp(path, races_path) ? info_of(races_path) : info;
    pthread_mutex_lock(&lock);
    if (!info || !races) find("%s", dlerror());
    else {
        Image *image = image_of(bytes, length);
        if (!image) {
            images = realloc(images, sizeof *images * (image_count + 1));
            image = images[image_count++] = calloc(1, sizeof *image);
            image->bytes = memcpy(malloc(length), bytes, length), image->length = length;
        }
        Code *code = code_of(image, entry);
        if (!code) {
            image->codes = realloc(image->codes, sizeof *image->codes * (image->count + 1));
            code = image->codes[image->count++] = calloc(1, sizeof *code);
        }
        *code = (Code){info, races, {0}, strdup(entry), strdup(name), array_count, calloc(array_count + 1, sizeof *code->arrays)};
        for (int i = 0; i < array_count; i++)
            code->arrays[i] = (Argument){offsets[i], axes[i], item_bytes[i], strdup(array_names[i])};
    }
    pthread_mutex_unlock(&lock);
    return info && races ? 0 : -1;
}
typedef struct { const Image *image; } Library; /* each that is loaded is one of its own */
Result cuLibraryLoadData(Library **library, const void *code, void *a, void *b, unsigned c, void *d, void *e, unsigned f) {
    *library = calloc(1, sizeof **library);
    LOCKED((*library)->image = image_of(code, 0));
    return SUCCESS;
}
Result cuLibraryGetKernel(Kernel **kernel, const Library *library, const char *entry) {
    Kernel *k = *kernel = calloc(1, sizeof *k);
    LOCKED(k->entry = strdup(entry), k->code = code_of(library->image, entry));
    return SUCCESS;
}
Result cuLibraryUnload(void *library) { return SUCCESS; }
Result cuKernelGetAttribute(int *value, int attribute, Kernel *kernel, int device) {
    const KernelInfo *k = kernel->code ? kernel->code->info : NULL;
    *value = attribute == 0 ? (k && k->max_threads ? k->max_threads : 1024) : attribute == 1 && k ? k->shared_bytes : 0;
    return SUCCESS; /* the others follow from machine code */
}
Result cuKernelSetAttribute(int attribute, int value, Kernel *kernel, int device) { return SUCCESS; }
typedef struct { unsigned grid[3], block[3], shared_bytes; Stream *stream; void *attributes; unsigned attribute_count; } LaunchConfig;
static Work *nothing(void) { /* a launch that computes nothing, in a microsecond */
    Work *w = make(LAUNCH, COMPUTE);
    if (w->seconds < 0) w->seconds = 1e-6;
    return w;
}
Result cuLaunchKernelEx(const LaunchConfig *config, Kernel *kernel, void **given_parameters, void **extra) {
    Code *code = kernel->code;
    const unsigned *grid = config->grid, *block = config->block;
    uint64_t threads = (uint64_t)block[0] * block[1] * block[2];
    slow();
    note_launch(kernel->entry, grid, block, config->shared_bytes, config->stream, given_parameters);
    if (books) return given(as_stream(config->stream), nothing());
    if (!code) { LOCKED(find("kernel %s was not translated", kernel->entry)); return NOT_FOUND; }
    const KernelInfo *k = code->info;
    if (!grid[0] || !grid[1] || !grid[2] || grid[0] > 2147483647u || grid[1] > 65535 || grid[2] > 65535 || !threads || threads > 1024 ||
        block[2] > 64 || (k->max_threads && threads > k->max_threads) || k->shared_bytes + config->shared_bytes > MOST_SHARED) {
        LOCKED(find("kernel %s: no GPU takes a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads with %u bytes of shared memory", code->name,
                    grid[0], grid[1], grid[2], block[0], block[1], block[2], k->shared_bytes + config->shared_bytes));
        return INVALID_VALUE;
    }
    Work *w = make(LAUNCH, COMPUTE);
    w->code = code, w->dynamic_shared_bytes = config->shared_bytes;
    memcpy(&w->grid, grid, 12), memcpy(&w->block, block, 12);
    w->parameters = aligned_alloc(64, (k->parameter_bytes + 128) / 64 * 64);
    for (unsigned i = 0, at = 0; i < k->parameter_count; at += k->parameter_sizes[i++]) {
        unsigned bytes = k->parameter_sizes[i], alignment = bytes > 8 ? 8 : bytes;
        at = (at + alignment - 1) / alignment * alignment;
        memcpy(w->parameters + at, given_parameters[i], bytes);
    }
    return given(as_stream(config->stream), w);
}

/* The same by names that numba-cuda-mlir and Numba's own target call: modules are libraries, functions are kernels. */
Result cuModuleLoadDataEx(Library **module, const void *code, unsigned n, void *keys, void *values) { return cuLibraryLoadData(module, code, 0, 0, 0, 0, 0, 0); }
Result cuModuleUnload(void *module) { return SUCCESS; }
Result cuModuleGetFunction(Kernel **function, const Library *module, const char *entry) { return cuLibraryGetKernel(function, module, entry); }
Result cuModuleGetGlobal_v2(Pointer *pointer, size_t *bytes, const Library *module, const char *name) { return NOT_FOUND; }
Result cuLibraryGetModule(const Library **module, const Library *library) { return *module = library, SUCCESS; }
Result cuKernelGetFunction(Kernel **function, Kernel *kernel) { return *function = kernel, SUCCESS; }
Result cuFuncGetAttribute(int *value, int attribute, Kernel *function) { return cuKernelGetAttribute(value, attribute, function, 0); }
Result cuFuncSetAttribute(Kernel *function, int attribute, int value) { return SUCCESS; }
Result cuLaunchKernel(Kernel *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes,
                      Stream *stream, void **parameters, void **extra) {
    const LaunchConfig config = {{gx, gy, gz}, {bx, by, bz}, shared_bytes, stream, NULL, 0};
    return cuLaunchKernelEx(&config, function, parameters, extra);
}
Result cuIpcOpenMemHandle(Pointer *pointer, ...) { return NOT_FOUND; }
Result cuOccupancyMaxPotentialBlockSize(int *grid, int *block, Kernel *function, void *shared_of, size_t shared_bytes, int limit) {
    cuFuncGetAttribute(block, 0, function);
    return *grid = MULTIPROCESSORS, *block = limit && limit < *block ? limit : *block, SUCCESS;
}
/* The linker of Numba's own target: what is linked stays the PTX that it was, as nothing here reads machine code. */
typedef struct { char *bytes; size_t length; } Linker;
Result cuLinkCreate_v2(unsigned n, void *keys, void *values, Linker **linker) { return *linker = calloc(1, sizeof **linker), SUCCESS; }
Result cuLinkAddData_v2(Linker *linker, int kind, const void *data, size_t n, const char *name, unsigned count, void *keys, void *values) {
    linker->bytes = realloc(linker->bytes, linker->length + n + 1);
    memcpy(linker->bytes + linker->length, data, n), linker->bytes[linker->length += n] = 0;
    return SUCCESS;
}
Result cuLinkComplete(Linker *linker, void **image, size_t *bytes) { return *image = linker->bytes, *bytes = linker->length + 1, SUCCESS; }
Result cuLinkDestroy(Linker *linker) { return free(linker->bytes), free(linker), SUCCESS; }

/* --- Finding and explaining --------------------------------------------------------------------------------------------------- */

Result cuGetErrorName(Result error, const char **text) {
    switch (error) {
    case SUCCESS: *text = "CUDA_SUCCESS"; break;
    case INVALID_VALUE: *text = "CUDA_ERROR_INVALID_VALUE"; break;
    case OUT_OF_MEMORY: *text = "CUDA_ERROR_OUT_OF_MEMORY"; break;
    case NOT_FOUND: *text = "CUDA_ERROR_NOT_FOUND"; break;
    case NOT_READY: *text = "CUDA_ERROR_NOT_READY"; break;
    case ILLEGAL_ADDRESS: *text = "CUDA_ERROR_ILLEGAL_ADDRESS"; break;
    case TIMEOUT: *text = "CUDA_ERROR_LAUNCH_TIMEOUT"; break;
    default: *text = "CUDA_ERROR_UNKNOWN";
    }
    return SUCCESS;
}
Result cuGetErrorString(Result error, const char **text) {
    *text = error == OUT_OF_MEMORY ? "out of memory" : finding_count ? findings[finding_count - 1] : "refused by the emulated GPU";
    return SUCCESS;
}
/* The newest version of a function, or nothing: what is not there must not be answered for. */
Result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    static void *self;
    char newest[256];
    Dl_info info;
    if (!self && dladdr((void *)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    snprintf(newest, sizeof newest, "%s_v2", name);
    if (!(*function = dlsym(self, newest))) *function = dlsym(self, name);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

/* --- What Python asks and tells (`__init__.py`) ----------------------------------------------------------------------------------- */

int emulated_finding_count(void) { return finding_count; }
const char *emulated_finding(int number) { return number < finding_count ? findings[number] : ""; }
void emulated_forgive(void) { /* forget what was found, and go on */
    pthread_mutex_lock(&lock);
    drain();
    sticky = 0;
    while (finding_count) free(findings[--finding_count]);
    pthread_mutex_unlock(&lock);
}
void emulated_order(int mode, uint64_t given_seed) {
    pthread_mutex_lock(&lock);
    drain();
    order_mode = mode, seed = given_seed, state = (given_seed + 1) * 0x9E3779B97F4A7C15ull | 1;
    for (int i = 0; i < 9; i++) draw();
    for (int i = 1; i < stream_count; i++) streams[i]->priority = draw() % 1000000;
    pthread_mutex_unlock(&lock);
}
void emulated_next(const char *label, double seconds) { /* of the work that this thread gives from now on */
    snprintf(next_work.label, sizeof next_work.label, "%s", label);
    next_work.seconds = seconds;
}
void emulated_names(const char *names) { snprintf(next_work.names, sizeof next_work.names, "%s", names); }
void emulated_ask_before_work(void (*ask)(void)) { about_to_give = ask; }
void emulated_set_devices(int count) { devices = count; }
void emulated_set_memory(uint64_t bytes) { LOCKED(memory_total = bytes); }
void emulated_set_patience(double seconds) { patience = seconds; }
void emulated_set_steps(uint64_t steps) { most_steps = steps; }
double emulated_kernel_seconds(void) { return kernel_seconds; }
uint64_t emulated_executed(int kind) { return executed[kind]; }
/* What one thread of the host knows, and what another takes up from it, under the same key. */
void emulated_pass_on(uint64_t key) { LOCKED(join(passed_on(key), tick()), tick()); }
void emulated_take_up(uint64_t key) { LOCKED(learn(passed_on(key)), tick()); }
void emulated_learn_nothing(int on) { learns_nothing = on; }
/* A thread of the host reads or writes memory that the GPU uses too. */
void emulated_touched(uint64_t lo, uint64_t bytes, int write, const char *who) {
    pthread_mutex_lock(&lock);
    const Clock *clock = tick();
    Access a = {lo, lo + bytes, clock->at[me.lane], me.lane, write, "", "", 0};
    snprintf(a.who, sizeof a.who, "%s", who);
    accessed(a, clock);
    pthread_mutex_unlock(&lock);
}
/* Time alone: a stream's work from now on starts, on the model's clock, no earlier than an event. */
void emulated_wait_in_time(Stream *stream, Event *event) {
    Work *w = make(WAIT, NONE);
    w->seconds = 0;
    LOCKED(w->time_after = keep(event->record), give(as_stream(stream), w));
}
/* A stretch of time on a stream's clock, in which the host works. */
void emulated_host_work(Stream *stream) { given(as_stream(stream), make(IDLE, HOST)); }
