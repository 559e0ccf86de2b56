/* What a translated kernel needs: its memory, checked, and PTX's arithmetic where C's differs.
 *
 * The translated source defines, before it includes this: SITES (global and local accesses), SHARED_TOTAL (bytes of
 * shared memory with red zones), LOCAL_BYTES (a thread's local memory), SHADOWS (whether it has shadows), DEEPEST (calls of recursive functions within each
 * other), WARPS (whether it has warp operations) and the tables `site_text`, `site_line` and `shared_arrays`.  RACES:
 * whether races are looked for.  TABLES: arrays of constants, in `tables`. */
#pragma once
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "abi.h"

#define INLINE static inline __attribute__((always_inline, unused))
#define COLD static __attribute__((noinline, cold, unused))
#define UNLIKELY(x) __builtin_expect(!!(x), 0)

typedef struct {
    Dim3 tid;
    uint32_t linear;
} Thread;
/* What a thread brings to a warp operation, and what it takes away. */
enum { SHFL_IDX, SHFL_UP, SHFL_DOWN, SHFL_BFLY, VOTE_ALL, VOTE_ANY, VOTE_UNI, VOTE_BALLOT, MATCH_ANY, WARP_BARRIER };
typedef struct { int kind, site; uint32_t mask, value, b, c, result, flag; } WarpStop;
typedef struct { uint64_t lo, places; int array; } Site; /* the array that an access was inside last time: see `outside` */
typedef struct { /* a word's shadow: who wrote it last, and who read it */
    uint64_t writer, reader;
} Shadow;
typedef struct { uint32_t steps, spans, depth; } Progress; /* of a thread: steps left of a span, spans before; calls of recursive functions */
enum { SPAN = 1 << 16 };
typedef struct {
    Dim3 ctaid, block, grid;
    const char *parameters;
    char *shared;
    Launch *launch;
    jmp_buf failed;
    uint64_t block_number;
    uint32_t phase; /* barriers that the block has passed */
    Shadow *shared_shadow, **global_shadow;
    Site site[SITES + 1];
    uint32_t span, looks;
} Context;

INLINE float u2f(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
INLINE uint32_t f2u(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
INLINE double u2d(uint64_t u) { double f; memcpy(&f, &u, 8); return f; }
INLINE uint64_t d2u(double f) { uint64_t u; memcpy(&u, &f, 8); return u; }

/* --- Findings ----------------------------------------------------------------------------------------------------- */

/* Write a finding down and leave the launch.  `site`: -1 where no instruction is to blame. */
COLD void fail(Context *C, const Thread *T, const char *what, int site, const char *more) {
    char where[600] = "", who[64] = "", text[200] = "";
    if (site >= 0 && site_line[site][0]) snprintf(where, sizeof where, ", %s", site_line[site]);
    if (site >= 0) snprintf(text, sizeof text, "; PTX: %s", site_text[site]);
    if (T) snprintf(who, sizeof who, ", thread (%u, %u, %u)", T->tid.x, T->tid.y, T->tid.z);
    snprintf(C->launch->finding, FINDING, "kernel %s%s: %s; block (%u, %u, %u)%s of grid (%u, %u, %u) x (%u, %u, %u)%s%s",
             C->launch->kernel, where, what, C->ctaid.x, C->ctaid.y, C->ctaid.z, who, C->grid.x, C->grid.y, C->grid.z,
             C->block.x, C->block.y, C->block.z, more, text);
    longjmp(C->failed, 1);
}

/* --- Ends: loops without one, functions that call themselves without one, and signals -------------------------------- */

/* Every now and then: has the host's program been interrupted? */
INLINE void look_up(Context *C, const Thread *T, int site) {
    if (C->launch->interrupted && C->launch->interrupted()) fail(C, T, "stopped by a signal", site, "");
}
/* A step is a turn of a loop.  A thread that has taken a span of them is looked at. */
COLD void span_is_over(Context *C, const Thread *T, Progress *p, int site) {
    char text[300];
    if (C->launch->most_steps && ++p->spans * (uint64_t)C->span >= C->launch->most_steps) {
        snprintf(text, sizeof text, "%llu steps of one thread: its loop has no end, or waits for a thread that does not run meanwhile (REFIMPL_STEPS=N allows N)",
                 (unsigned long long)C->launch->most_steps);
        fail(C, T, text, site, "");
    }
    p->steps = C->span;
    look_up(C, T, site);
}
#define STEP(site) if (UNLIKELY(!--S->progress.steps)) span_is_over(C, T, &S->progress, site)
/* Recursion: a GPU's stack has 1 KiB a thread, unless more is asked for, and a call takes 8 bytes of it at least. */
COLD void call_deeper(Context *C, const Thread *T, Progress *p, int site) {
    char text[200];
    if (++p->depth <= DEEPEST) return;
    snprintf(text, sizeof text, "a function calls itself more than %d deep, which is more than the stack of a GPU's thread holds", DEEPEST);
    fail(C, T, text, site, "");
}

/* --- Races: between the threads of a block, in one phase, and between blocks ---------------------------------------- */

/* A stamp says who: block + 1 (34 bits), phase (18), thread (10); its two top bits are free. */
#define STAMP(C, T) (((C)->block_number + 1) << 28 | (uint64_t)((C)->phase & 0x3ffff) << 10 | (T)->linear)
#define MORE_THREADS (1ull << 63) /* of a reader: more than this one in the phase */
#define MORE_BLOCKS (1ull << 62)  /* of a reader: more than this block */
#define ATOMIC (1ull << 61)       /* it was an atomic operation, or a volatile read */
#define WHO (ATOMIC - 1)
enum { READ, PEEK, WRITE, UPDATE }; /* peek: a volatile read, as before a compare-and-swap; update: an atomic operation */

INLINE int unordered(uint64_t one, uint64_t other, int shared) {
    if (!one || one == other) return 0;
    return one >> 28 != other >> 28 ? !shared : one >> 10 == other >> 10;
}
/* The shared array that an address is in, or just after, and the word of it: "shared array 1, word 3". */
COLD void name_shared(char *text, size_t room, uint64_t a) {
    snprintf(text, room, "shared memory, word %llu", (unsigned long long)(a / 4));
    for (unsigned i = 0; i < SHARED_ARRAYS; i++)
        if (a >= shared_arrays[i].offset - 128 && a < shared_arrays[i].offset + shared_arrays[i].bytes + 128)
            snprintf(text, room, "%s, word %lld of %u", shared_arrays[i].name, ((long long)a - shared_arrays[i].offset) / 4, shared_arrays[i].bytes / 4);
}
COLD void raced(Context *C, const Thread *T, int site, const char *what, const char *array, uint64_t index, uint64_t other) {
    char text[300], more[120], named[120];
    if (array) snprintf(named, sizeof named, "%s, word %llu", array, (unsigned long long)index);
    else name_shared(named, sizeof named, 4 * index);
    uint64_t block = ((other & WHO) >> 28) - 1;
    snprintf(text, sizeof text, "race: %s of %s", what, named);
    snprintf(more, sizeof more, "; nothing orders it and block (%llu, %llu, %llu), thread %u", (unsigned long long)(block % C->grid.x),
             (unsigned long long)(block / C->grid.x % C->grid.y), (unsigned long long)(block / C->grid.x / C->grid.y),
             (unsigned)(other & 1023));
    fail(C, T, text, site, more);
}
/* `array`: its name; NULL in shared memory, where only the threads of one block meet. */
static __attribute__((noinline, unused)) void look_for_races(Context *C, const Thread *T, Shadow *word, unsigned bytes, int how, int site, const char *array, uint64_t index) {
    uint64_t me = STAMP(C, T);
    int shared = !array;
    if (bytes < 4) { /* other threads may use the word's other bytes: it is written, and not searched */
        if (how >= WRITE) word->writer = me;
        return;
    }
    for (unsigned i = 0; i < bytes / 4; i++, word++) {
        uint64_t writer = word->writer & WHO, reader = word->reader & WHO;
        if (!((how == UPDATE || how == PEEK) && word->writer & ATOMIC) && unordered(writer, me, shared))
            raced(C, T, site, how < WRITE ? "a read beside a write" : "two writes", array, index + i, writer);
        int same_block = reader >> 28 == me >> 28, same_phase = reader >> 10 == me >> 10;
        if (how == PEEK && (!reader || word->reader & ATOMIC)) word->reader = me | ATOMIC;
        else if (how >= WRITE) {
            if (reader && !(how == UPDATE && word->reader & ATOMIC) && (unordered(reader, me, shared) || (same_phase && word->reader & MORE_THREADS) ||
                           (!shared && word->reader & MORE_BLOCKS)))
                raced(C, T, site, "a write beside a read", array, index + i, reader);
            word->writer = me | (how == UPDATE ? ATOMIC : 0);
        } else if (!reader || (shared && !same_block)) word->reader = me;
        else if (!same_block) word->reader = me | MORE_BLOCKS;
        else if (!same_phase) word->reader = me | (word->reader & MORE_BLOCKS);
        else if (reader != me) word->reader |= MORE_THREADS;
    }
}

/* --- Memory: every access is checked, then it is a pointer ----------------------------------------------------------- */

/* Whether an access at a is outside of its site's array, or misaligned: the low bits of a - lo, which are 0 in an aligned
 * one, are rotated to the top.  So one comparison decides both.  `places`: aligned places inside; none before the first. */
INLINE int outside(const Site *s, uint64_t a, unsigned alignment) {
    uint64_t at = a - s->lo;
    int low_bits = __builtin_ctz(alignment);
    return (at >> low_bits | at << (-low_bits & 63)) >= s->places;
}
/* From now on this site's accesses are compared with an array of this many bytes. */
INLINE void remember(Context *C, int site, int array, uint64_t lo, uint64_t hi, unsigned bytes, unsigned alignment) {
    lo = (lo + alignment - 1) & -(uint64_t)alignment;
    C->site[site] = (Site){lo, (hi - bytes - lo) / alignment + 1, array};
}
COLD void resolve(Context *C, const Thread *T, uint64_t a, unsigned bytes, int site, int how, unsigned alignment) {
    Launch *launch = C->launch;
    char text[300], more[900] = "; the arrays:";
    if (a & (alignment - 1)) {
        snprintf(text, sizeof text, "a misaligned %s of %u bytes at %#llx", how < WRITE ? "read" : "write", bytes, (unsigned long long)a);
        fail(C, T, text, site, "");
    }
    for (int i = 0; i < TABLES && how < WRITE; i++) {
        uint64_t lo = (uint64_t)tables[i].lo, hi = lo + tables[i].bytes;
        if (a >= lo && a + bytes <= hi) {
            remember(C, site, -1, lo, hi, bytes, alignment);
            return;
        }
    }
    const Array *nearest = NULL;
    for (int i = 0; i < launch->array_count; i++) {
        Array *array = &launch->arrays[i];
        if (a >= array->lo && a + bytes <= array->hi) {
            remember(C, site, i, array->lo, array->hi, bytes, alignment);
            if (how != WRITE) array->read = 1;
            if (how >= WRITE) array->written = 1;
            return;
        }
        if (!nearest || llabs((int64_t)(a - array->lo)) < llabs((int64_t)(a - nearest->lo))) nearest = array;
        size_t used = strlen(more);
        snprintf(more + used, sizeof more - used, " %s [%#llx, +%llu)", array->name, (unsigned long long)array->lo,
                 (unsigned long long)(array->hi - array->lo));
    }
    snprintf(text, sizeof text, "a %s of %u bytes outside of every array of the launch, %lld bytes from the start of %s, which has %llu",
             how < WRITE ? "read" : "write", bytes, nearest ? (long long)(a - nearest->lo) : 0LL, nearest ? nearest->name : "none",
             nearest ? (unsigned long long)(nearest->hi - nearest->lo) : 0ULL);
    fail(C, T, text, site, more);
}
INLINE void *global(Context *C, const Thread *T, uint64_t a, unsigned bytes, unsigned alignment, int site, int how) {
    Site *s = &C->site[site];
    if (UNLIKELY(outside(s, a, alignment))) resolve(C, T, a, bytes, site, how, alignment);
#if RACES
    if (s->array < 0) return (void *)a; /* of constants */
    const Array *array = &C->launch->arrays[s->array];
    uint64_t word = (a - array->lo) / 4;
    look_for_races(C, T, C->global_shadow[s->array] + word, bytes, how, site, array->name, word);
#endif
    return (void *)a;
}
COLD void resolve_shared(Context *C, const Thread *T, uint64_t a, unsigned bytes, int site, int how, unsigned alignment) {
    char text[300], named[120];
    for (unsigned i = 0; i <= SHARED_ARRAYS && !(a & (alignment - 1)); i++) {
        uint64_t lo = i < SHARED_ARRAYS ? shared_arrays[i].offset : SHARED_TOTAL; /* after the others: dynamic shared memory */
        uint64_t hi = lo + (i < SHARED_ARRAYS ? shared_arrays[i].bytes : C->launch->dynamic_shared_bytes);
        if (a >= lo && a + bytes <= hi) {
            remember(C, site, i, lo, hi, bytes, alignment);
            return;
        }
    }
    name_shared(named, sizeof named, a);
    snprintf(text, sizeof text, "%s of %u bytes of %s", a & (alignment - 1) ? how < WRITE ? "a misaligned read" : "a misaligned write"
             : how < WRITE ? "a read outside of the array" : "a write outside of the array", bytes, named);
    fail(C, T, text, site, "");
}
INLINE void *shared(Context *C, const Thread *T, uint64_t a, unsigned bytes, unsigned alignment, int site, int how) {
    if (UNLIKELY(outside(&C->site[site], a, alignment))) resolve_shared(C, T, a, bytes, site, how, alignment);
#if RACES
    Shadow *word = C->shared_shadow + a / 4;
    char text[300], named[120];
    if (how != WRITE)
        for (unsigned i = 0; i < (bytes + 3) / 4; i++)
            if (UNLIKELY((word[i].writer & WHO) >> 28 != C->block_number + 1)) {
                name_shared(named, sizeof named, a + 4 * i);
                snprintf(text, sizeof text, "a read of %s, which no thread of the block has written", named);
                fail(C, T, text, site, "");
            }
    look_for_races(C, T, word, bytes, how, site, NULL, a / 4);
#endif
    return C->shared + a;
}
/* Local memory is addressed from its thread's own base, so a generic address can be told from a global one. */
INLINE void *local(Context *C, const Thread *T, char *base, uint64_t a, unsigned bytes, unsigned alignment, int site, int how) {
    uint64_t at = a - (uint64_t)base;
    if (UNLIKELY(at > LOCAL_BYTES - bytes || at & (alignment - 1))) {
        char text[200];
        snprintf(text, sizeof text, "a %s of %u bytes outside of the thread's local arrays, %lld bytes from their start, which have %u",
                 how < WRITE ? "read" : "write", bytes, (long long)at, (unsigned)LOCAL_BYTES);
        fail(C, T, text, site, "");
    }
    return (void *)a;
}
/* Bits of local arrays that the thread has not written (unwritten.py).  A thread's local memory is followed by its shadow. */
#define LOCAL_STRIDE (((LOCAL_BYTES) + 15) / 16 * 16 * (1 + SHADOWS))
#define SHADOW_OF(q) ((uint64_t)((char *)(q) - S->local) < LOCAL_BYTES ? (void *)((char *)(q) + LOCAL_STRIDE / 2) : NULL)
COLD void not_written(Context *C, const Thread *T, const char *what, int site) {
    char text[200];
    snprintf(text, sizeof text, "%s depends on an element of a local array that the thread has not written", what);
    fail(C, T, text, site, "");
}
INLINE void *generic(Context *C, const Thread *T, char *base, uint64_t a, unsigned bytes, unsigned alignment, int site, int how) {
    if (SHARED_ARRAYS + DYNAMIC_SHARED && a < SHARED_TOTAL + DYNAMIC_SHARED) return shared(C, T, a, bytes, alignment, site, how);
    return a - (uint64_t)base < LOCAL_BYTES ? local(C, T, base, a, bytes, alignment, site, how)
                                            : global(C, T, a, bytes, alignment, site, how);
}

/* --- Arithmetic: where PTX says more than C --------------------------------------------------------------------------- */

#define INTEGER(t, ct, ut, wide, bits) \
    INLINE ct min_##t(ct a, ct b) { return a < b ? a : b; } \
    INLINE ct max_##t(ct a, ct b) { return a > b ? a : b; } \
    INLINE ct mulhi_##t(ct a, ct b) { return (ct)(((wide)a * (wide)b) >> bits); } \
    INLINE ct div_##t(Context *C, const Thread *T, ct a, ct b, int site) { \
        if (UNLIKELY(!b)) fail(C, T, "a division by zero", site, ""); \
        return b == (ct)-1 && (ct)-1 < 0 ? (ct)(0 - (ut)a) : (ct)(a / b); \
    } \
    INLINE ct rem_##t(Context *C, const Thread *T, ct a, ct b, int site) { \
        if (UNLIKELY(!b)) fail(C, T, "a remainder by zero", site, ""); \
        return b == (ct)-1 && (ct)-1 < 0 ? 0 : (ct)(a % b); \
    } \
    INLINE ct shr_##t(ct a, uint32_t n) { return n >= bits ? (a < 0 ? (ct)-1 : 0) : (ct)(a >> n); } \
    INLINE ut shl_##t(ut a, uint32_t n) { return n >= bits ? 0 : (ut)(a << n); }
INTEGER(s16, int16_t, uint16_t, int32_t, 16)
INTEGER(u16, uint16_t, uint16_t, uint32_t, 16)
INTEGER(s32, int32_t, uint32_t, int64_t, 32)
INTEGER(u32, uint32_t, uint32_t, uint64_t, 32)
INTEGER(s64, int64_t, uint64_t, __int128, 64)
INTEGER(u64, uint64_t, uint64_t, unsigned __int128, 64)

INLINE uint32_t clz_b32(uint32_t a) { return a ? __builtin_clz(a) : 32; }
INLINE uint32_t clz_b64(uint64_t a) { return a ? __builtin_clzll(a) : 64; }
INLINE uint32_t brev_b32(uint32_t a) {
    uint32_t r = 0;
    for (int i = 0; i < 32; i++) r |= (a >> i & 1) << (31 - i);
    return r;
}
INLINE uint32_t bfe_u32(uint32_t a, uint32_t from, uint32_t count) {
    from &= 255, count &= 255;
    return from > 31 || !count ? 0 : count > 31 ? a >> from : a >> from & ((1u << count) - 1);
}
INLINE uint32_t bfi_b32(uint32_t a, uint32_t b, uint32_t from, uint32_t count) {
    from &= 255, count &= 255;
    if (from > 31 || !count) return b;
    uint32_t mask = (count > 31 ? ~0u : (1u << count) - 1) << from;
    return (b & ~mask) | (a << from & mask);
}
INLINE uint64_t bfi_b64(uint64_t a, uint64_t b, uint32_t from, uint32_t count) {
    from &= 255, count &= 255;
    if (from > 63 || !count) return b;
    uint64_t mask = (count > 63 ? ~0ull : (1ull << count) - 1) << from;
    return (b & ~mask) | (a << from & mask);
}
/* A sum whose carry the next instruction adds. */
INLINE uint32_t prmt(uint32_t a, uint32_t b, uint32_t select) {
    uint64_t both = (uint64_t)b << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        uint32_t s = select >> 4 * i & 15, byte = both >> 8 * (s & 7) & 255;
        r |= (s & 8 ? (byte & 128 ? 255 : 0) : byte) << 8 * i;
    }
    return r;
}
INLINE uint32_t shf_l(uint32_t a, uint32_t b, uint32_t n) { n &= 31; return n ? b << n | a >> (32 - n) : b; }
INLINE uint32_t shf_r(uint32_t a, uint32_t b, uint32_t n) { n &= 31; return n ? b << (32 - n) | a >> n : a; }

/* Of two numbers the one that is not NaN; -0 is less than +0. */
INLINE float fmin_ptx(float a, float b) { return a != a ? b : b != b ? a : a == b ? u2f(f2u(a) | f2u(b)) : a < b ? a : b; }
INLINE float fmax_ptx(float a, float b) { return a != a ? b : b != b ? a : a == b ? u2f(f2u(a) & f2u(b)) : a > b ? a : b; }
INLINE double dmin_ptx(double a, double b) { return a != a ? b : b != b ? a : a < b || (a == b && signbit(a)) ? a : b; }
INLINE double dmax_ptx(double a, double b) { return a != a ? b : b != b ? a : a > b || (a == b && !signbit(a)) ? a : b; }
INLINE float saturate(float a) { return a != a || a < 0.0f ? 0.0f : a > 1.0f ? 1.0f : a; }
INLINE float flush(float a) { return __builtin_fabsf(a) < 0x1p-126f ? __builtin_copysignf(0.0f, a) : a; }
/* Approximate functions: a GPU's last bits differ. */
INLINE float ex2_ftz(float a) { return flush(exp2f(flush(a))); }
INLINE float lg2_ftz(float a) { return flush(log2f(flush(a))); }
/* Rounded down: the double nearest to the sum, its error, and one step down if the float is above it. */
INLINE float add_rz(float a, float b) {
    float sum = a + b, from_b = sum - a, left = (a - (sum - from_b)) + (b - from_b); /* the sum's error, exact */
    return (left < 0 && sum > 0) || (left > 0 && sum < 0) ? nextafterf(sum, 0) : sum;
}
INLINE float fma_rm(float a, float b, float c) {
    double p = (double)a * b, s = p + c, t = s - p, e = (p - (s - t)) + (c - t);
    float f = (float)s;
    if (f != f || __builtin_isinf(f)) return f;
    if ((double)f > s || ((double)f == s && e < 0)) f = __builtin_nextafterf(f, -__builtin_inff());
    return f;
}
/* A float to an integer: NaN is 0, what is too large is the nearest there is. */
#define TO_INTEGER(t, ct, low, high) \
    INLINE ct to_##t(double a) { return a != a ? 0 : a <= (double)(low) ? (low) : a >= (double)(high) ? (high) : (ct)a; }
TO_INTEGER(s16, int16_t, INT16_MIN, INT16_MAX)
TO_INTEGER(u16, uint16_t, 0, UINT16_MAX)
TO_INTEGER(s32, int32_t, INT32_MIN, INT32_MAX)
TO_INTEGER(u32, uint32_t, 0, UINT32_MAX)
TO_INTEGER(s64, int64_t, INT64_MIN, INT64_MAX)
TO_INTEGER(u64, uint64_t, 0, UINT64_MAX)
INLINE uint32_t lop3(uint32_t a, uint32_t b, uint32_t c, uint32_t table) {
    uint32_t r = 0;
    for (int i = 0; i < 8; i++)
        if (table >> i & 1) r |= (i & 4 ? a : ~a) & (i & 2 ? b : ~b) & (i & 1 ? c : ~c);
    return r;
}
