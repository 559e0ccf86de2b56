/* What the driver and a translated kernel tell each other. */
#pragma once
#include <stdint.h>

typedef struct { uint32_t x, y, z; } Dim3;

/* An array among a launch's arguments: the addresses that the kernel may touch, and whether it did. */
typedef struct {
    uint64_t lo, hi;
    const char *name;
    unsigned read, written;
} Array;

typedef struct {
    Dim3 grid, block;
    const char *kernel; /* its name in the source */
    const char *parameters;
    Array *arrays;
    int array_count;
    unsigned dynamic_shared_bytes;
    uint64_t seed; /* of the order of blocks and threads; 0: their own order */
    char *finding; /* FINDING bytes; what went wrong */
    uint64_t most_steps;      /* turns of loops of a thread after which it is stopped; 0: it never is */
    int (*interrupted)(void); /* whether the host's program wants the launch to stop; or NULL */
} Launch;

enum { FINDING = 2048 };

typedef struct {
    unsigned parameter_count, parameter_bytes, shared_bytes, max_threads;
    const unsigned *parameter_sizes;
    int (*launch)(Launch *); /* 0: it ran to its end */
} KernelInfo;
