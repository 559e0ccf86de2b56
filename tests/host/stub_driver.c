/* A CUDA driver library that only keeps books: device memory is host memory, copies are memcpy, and a launch is written
 * down instead of made.  With it in front of the library path, the real host code of Numba, cuda.core and this project
 * runs on a machine without a GPU: contexts, compilation, streams, events, arrays, launches.
 *
 * Exported are the driver calls that this host code makes, as one H100, and at the end of the file the questions that a
 * test may ask.  A driver call that is not here is reported as missing when it is looked up, never answered with a lie.
 *
 *     cc -shared -fPIC -o libcuda.so.1 stub_driver.c -ldl
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, OUT_OF_MEMORY = 2, NOT_FOUND = 500, TIMEOUT = 702 }; /* values of CUresult */
enum { DRIVER_VERSION = 13000, MULTIPROCESSORS = 132, MAX_RECORDS = 1024, MAX_PARAMETERS = 128, MAX_NOTES = 1 << 16 };
static const size_t MEMORY = (size_t)80 << 30;

typedef int Result;
typedef uint64_t Pointer; /* CUdeviceptr */

typedef struct { unsigned flags; } Stream;
typedef struct { double milliseconds; } Event;
typedef struct { char name[1024]; } Kernel;

typedef struct { /* as in cuda.h: CUlaunchConfig */
    unsigned grid[3], block[3], shared_bytes;
    Stream *stream;
    void *attributes;
    unsigned attribute_count;
} LaunchConfig;

typedef struct { /* what a test sees of a launch */
    const char *kernel;
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    unsigned parameter_count;
    uint64_t parameters[MAX_PARAMETERS];
} Record;

typedef struct { /* one piece of work given to a stream, as a test sees it */
    char what[16];
    void *stream;
    uint64_t device, host, bytes; /* of a copy; a wait for a value: its place, the value, how it is compared */
    void *event;                  /* of a record or a wait */
} Note;

static Record records[MAX_RECORDS];
static Note notes[MAX_NOTES];
static long noted;
static volatile int held_back = 1; /* whether a wait for a value lasts until it is there */
static volatile int slowness;      /* microseconds that a launch and a synchronisation take */
static long event_waits;           /* of the host */
static long launches, allocations, frees, created; /* created: streams and events */
static char layout[MAX_PARAMETERS + 1]; /* bytes of each parameter of the launches to come, as digits */
static int context;                     /* its address is the one context */
static int devices = 1;
static __thread void *current_context;

static Result note(const char *what, Stream *stream, uint64_t device, uint64_t host, uint64_t bytes, void *event) {
    Note *made = &notes[noted++ % MAX_NOTES];
    snprintf(made->what, sizeof made->what, "%s", what);
    made->stream = stream, made->device = device, made->host = host, made->bytes = bytes, made->event = event;
    return SUCCESS;
}

static void slow(void) {
    if (slowness) usleep(slowness);
}

/* --- Device and context ------------------------------------------------------------------------------------------- */

Result cuInit(unsigned flags) { return SUCCESS; }
Result cuDriverGetVersion(int *version) { return *version = DRIVER_VERSION, SUCCESS; }
Result cuDeviceGetCount(int *count) { return *count = devices, SUCCESS; }
Result cuDeviceGet(int *device, int ordinal) { return *device = ordinal, SUCCESS; }
Result cuDeviceCanAccessPeer(int *can, int device, int peer) { return *can = 1, SUCCESS; }
Result cuDeviceGetName(char *name, int length, int device) { return snprintf(name, length, "Stub H100"), SUCCESS; }
Result cuDeviceGetUuid_v2(char *uuid, int device) { return memset(uuid, 7, 16), SUCCESS; }

Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    switch (attribute) { /* values of CUdevice_attribute */
    case 1: case 2: case 3: *value = 1024; break; /* threads in a block; x and y of a block */
    case 4: *value = 64; break;                   /* z of a block */
    case 5: *value = 2147483647; break;           /* x of a grid */
    case 6: case 7: *value = 65535; break;        /* y and z of a grid */
    case 8: *value = 48 * 1024; break;            /* shared memory of a block */
    case 10: *value = 32; break;                  /* threads in a warp */
    case 16: *value = MULTIPROCESSORS; break;
    case 75: *value = 9; break;                   /* compute capability */
    case 76: *value = 0; break;
    default: *value = 1;
    }
    return SUCCESS;
}

Result cuDevicePrimaryCtxRetain(void **out, int device) { return *out = &context, SUCCESS; }
Result cuDevicePrimaryCtxRelease_v2(int device) { return SUCCESS; }
Result cuCtxGetCurrent(void **out) { return *out = current_context, SUCCESS; }
Result cuCtxSetCurrent(void *given) { return current_context = given, SUCCESS; }
Result cuCtxPushCurrent_v2(void *given) { return current_context = given, SUCCESS; }
Result cuCtxPopCurrent_v2(void **out) { return *out = current_context, SUCCESS; }
Result cuCtxGetDevice(int *device) { return *device = 0, SUCCESS; }
Result cuCtxSynchronize(void) { return SUCCESS; }

/* --- Memory ------------------------------------------------------------------------------------------------------- */

Result cuMemGetInfo_v2(size_t *available, size_t *total) { return *available = *total = MEMORY, SUCCESS; }

/* The two calls that a pool is there to avoid are noted among the streams' work, on no stream. */
Result cuMemFree_v2(Pointer pointer) {
    frees++;
    free((void *)pointer);
    return note("free", NULL, pointer, 0, 0, NULL);
}

Result cuMemAlloc_v2(Pointer *pointer, size_t bytes) {
    allocations++;
    *pointer = (Pointer)calloc(1, bytes); /* zeros: a loss that nobody computes is a number */
    return *pointer ? note("allocate", NULL, *pointer, 0, bytes, NULL) : OUT_OF_MEMORY;
}

/* Copies that name no stream are the default stream's. */
Result cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) {
    memcpy((void *)to, from, bytes);
    return note("copy in", NULL, to, (uint64_t)from, bytes, NULL);
}

Result cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) {
    memcpy(to, (void *)from, bytes);
    return note("copy out", NULL, from, (uint64_t)to, bytes, NULL);
}

/* Host memory that the driver has pinned is plain memory here. */
Result cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    allocations++;
    *out = malloc(bytes);
    return *out ? SUCCESS : OUT_OF_MEMORY;
}

Result cuMemFreeHost(void *given) { return frees++, free(given), SUCCESS; }

Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, Stream *stream) {
    memcpy((void *)to, from, bytes);
    return note("copy in", stream, to, (uint64_t)from, bytes, NULL);
}

Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, Stream *stream) {
    memcpy(to, (void *)from, bytes);
    return note("copy out", stream, from, (uint64_t)to, bytes, NULL);
}

/* Both GPUs have the one context. */
Result cuCtxEnablePeerAccess(void *peer, unsigned flags) { return SUCCESS; }
Result cuMemcpyPeerAsync(Pointer to, void *there, Pointer from, void *here, size_t bytes, Stream *stream) {
    memcpy((void *)to, (void *)from, bytes);
    return note("copy peer", stream, to, from, bytes, NULL);
}

/* --- Streams and events ------------------------------------------------------------------------------------------- */

Result cuStreamCreateWithPriority(Stream **stream, unsigned flags, int priority) {
    created++;
    *stream = malloc(sizeof(Stream));
    (*stream)->flags = flags;
    return SUCCESS;
}

Result cuStreamCreate(Stream **stream, unsigned flags) { return cuStreamCreateWithPriority(stream, flags, 0); }
Result cuStreamDestroy_v2(Stream *stream) { return free(stream), SUCCESS; }
Result cuStreamSynchronize(Stream *stream) { return slow(), SUCCESS; }
Result cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) { return note("wait", stream, 0, 0, 0, event); }
/* Copies are made when they are given, so a stream that has to wait holds its giver up.  A driver never does. */
Result cuStreamWaitValue32_v2(Stream *stream, Pointer place, uint32_t value, unsigned flags) {
    note("wait value", stream, place, value, flags, NULL);
    for (int tries = 0; held_back && (int32_t)(*(volatile uint32_t *)place - value) < 0; tries++) {
        if (tries == 100000) return TIMEOUT; /* 10 seconds */
        usleep(100);
    }
    return SUCCESS;
}

Result cuCtxGetStreamPriorityRange(int *least, int *greatest) { return *least = 0, *greatest = -5, SUCCESS; }

Result cuEventCreate(Event **event, unsigned flags) {
    created++;
    return *event = calloc(1, sizeof(Event)), SUCCESS;
}

Result cuEventDestroy_v2(Event *event) { return free(event), SUCCESS; }
Result cuEventQuery(Event *event) { return SUCCESS; }
Result cuEventSynchronize(Event *event) { return event_waits++, slow(), SUCCESS; }

Result cuEventRecord(Event *event, Stream *stream) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    event->milliseconds = now.tv_sec * 1e3 + now.tv_nsec * 1e-6;
    return note("record", stream, 0, 0, 0, event);
}

Result cuEventElapsedTime_v2(float *milliseconds, Event *start, Event *end) {
    return *milliseconds = (float)(end->milliseconds - start->milliseconds), SUCCESS;
}

/* --- Code and launches -------------------------------------------------------------------------------------------- */

Result cuLibraryLoadData(void **library, const void *code, void *jit_options, void *jit_values, unsigned jit_count,
                         void *options, void *values, unsigned count) {
    return *library = malloc(1), SUCCESS;
}

Result cuLibraryGetKernel(Kernel **kernel, void *library, const char *name) {
    *kernel = malloc(sizeof(Kernel));
    snprintf((*kernel)->name, sizeof (*kernel)->name, "%s", name);
    return SUCCESS;
}

Result cuLibraryUnload(void *library) { return SUCCESS; }
Result cuKernelGetAttribute(int *value, int attribute, Kernel *kernel, int device) { return *value = 0, SUCCESS; }

Result cuLaunchKernelEx(const LaunchConfig *config, Kernel *kernel, void **parameters, void **extra) {
    slow();
    Record *record = &records[launches++ % MAX_RECORDS];
    record->kernel = kernel->name;
    memcpy(record->grid, config->grid, sizeof record->grid);
    memcpy(record->block, config->block, sizeof record->block);
    record->shared_bytes = config->shared_bytes;
    record->stream = config->stream;
    record->parameter_count = (unsigned)strlen(layout);
    for (unsigned i = 0; i < record->parameter_count; i++) {
        record->parameters[i] = 0;
        memcpy(&record->parameters[i], parameters[i], layout[i] - '0');
    }
    return note("launch", config->stream, 0, 0, 0, NULL);
}

/* --- Finding and explaining ---------------------------------------------------------------------------------------- */

Result cuGetErrorName(Result error, const char **text) { return *text = "STUB_ERROR", SUCCESS; }
Result cuGetErrorString(Result error, const char **text) { return *text = "an error of the stub driver", SUCCESS; }

/* Callers look a function up under its plain name and get the newest version of it. */
Result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    static void *self;
    char newest[256];
    Dl_info info;
    if (!self && dladdr((void *)cuInit, &info)) self = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
    snprintf(newest, sizeof newest, "%s_v2", name);
    *function = dlsym(self, newest);
    if (!*function) *function = dlsym(self, name);
    if (status) *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}

/* --- What a test may ask ------------------------------------------------------------------------------------------- */

long stub_launches(void) { return launches; }
long stub_allocations(void) { return allocations; }
long stub_frees(void) { return frees; }
long stub_created(void) { return created; }
long stub_event_waits(void) { return event_waits; }
long stub_noted(void) { return noted; }
const Note *stub_note(long number) { return &notes[number % MAX_NOTES]; }
const Record *stub_record(long number) { return &records[number % MAX_RECORDS]; }

/* How many GPUs there are. */
void stub_devices(int count) { devices = count; }

/* Whether a stream that waits for a value is held up until it is there; how slow launches and synchronising are. */
void stub_hold_back(int whether) { held_back = whether; }
void stub_slow(int microseconds) { slowness = microseconds; }

/* From now on, note the values of parameters too.  A driver reads their sizes in the machine code; here they are told. */
void stub_layout(const char *sizes) { snprintf(layout, sizeof layout, "%s", sizes); }
