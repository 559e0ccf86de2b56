/* Runs a grid: one block after another, and in each every thread to its next stop (a barrier, a warp operation, or its
 * end).  Included by the translated source after `thread`, which returns where it stopped: 0 at its end, n > 0 at
 * barrier n, -n at warp operation n. */

static uint64_t draw(uint64_t *seed) { return *seed ^= *seed << 13, *seed ^= *seed >> 7, *seed ^= *seed << 17; }

#if WARPS
/* The lanes of `mask` have all reached the same operation: give each its result. */
static void exchange(Context *C, struct State *states, const Thread *threads, unsigned first, uint32_t mask) {
    uint32_t values[32] = {0}, ballot = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) values[lane] = states[first + lane].warp.value, ballot |= (uint32_t)!!values[lane] << lane;
    for (unsigned lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        WarpStop *w = &states[first + lane].warp;
        if (w->kind <= SHFL_BFLY) {
            uint32_t b = w->b & 31, group = w->c >> 8 & 31, last = (lane & group) | (w->c & 31 & ~group), from;
            if (w->kind == SHFL_IDX) from = (lane & group) | (b & ~group);
            else from = w->kind == SHFL_UP ? lane - b : w->kind == SHFL_DOWN ? lane + b : lane ^ b;
            w->flag = w->kind == SHFL_UP ? (int32_t)from >= (int32_t)last : from <= last;
            if (!w->flag) from = lane;
            if (!(mask >> from & 1)) {
                char text[120];
                snprintf(text, sizeof text, "a shuffle reads lane %u, which does not take part in it", from);
                fail(C, &threads[first + lane], text, w->site, "");
            }
            w->result = values[from];
        } else if (w->kind == MATCH_ANY) {
            w->result = 0;
            for (unsigned other = 0; other < 32; other++)
                w->result |= (uint32_t)((mask >> other & 1) && values[other] == values[lane]) << other;
        } else
            w->result = w->kind == VOTE_ALL   ? ballot == mask
                        : w->kind == VOTE_ANY ? ballot != 0
                        : w->kind == VOTE_UNI ? ballot == 0 || ballot == mask
                                              : ballot;
    }
}

/* Every thread of a warp to a barrier of the block, or to its end. */
static void run_warp(Context *C, struct State *states, const Thread *threads, unsigned first, unsigned count) {
    uint32_t there = count < 32 ? (1u << count) - 1 : ~0u, go = there;
    for (;;) {
        for (unsigned lane = 0; lane < count; lane++)
            if (go >> lane & 1) states[first + lane].pc = thread(C, &states[first + lane], &threads[first + lane]);
        go = 0;
        int stopped = -1;
        for (unsigned lane = 0; lane < count && !go; lane++) {
            struct State *s = &states[first + lane];
            if (s->pc >= 0) continue;
            stopped = lane;
            uint32_t mask = s->warp.mask & there, all = mask >> lane & 1;
            for (unsigned other = 0; other < count && all; other++)
                if (mask >> other & 1) all = states[first + other].pc == s->pc && (states[first + other].warp.mask & there) == mask;
            if (all) go = mask;
        }
        if (stopped < 0) return;
        if (!go) fail(C, &threads[first + stopped], "a warp operation that not all threads of its mask reach", states[first + stopped].warp.site, "");
        exchange(C, states, threads, first, go);
    }
}
#endif

static void one_block(Context *C, struct State *states, const Thread *threads, const uint32_t *order, unsigned n) {
    memset(C->shared, 0xff, SHARED_TOTAL + DYNAMIC_SHARED); /* NaN */
    C->phase = 0;
    for (unsigned i = 0; i < n; i++) states[i].pc = 0, states[i].progress = (Progress){C->span, 0, 0};
    for (int turn = 0;; turn++) {
        int first = 0, ended = 0;
        unsigned who = 0;
        if (UNLIKELY(!(++C->looks & 15))) look_up(C, NULL, -1);
#if WARPS
        for (unsigned at = 0; at < n; at += 32) run_warp(C, states, threads, at, n - at < 32 ? n - at : 32);
#endif
        for (unsigned k = 0; k < n; k++) {
            unsigned i = C->launch->seed && turn & 1 ? order[n - 1 - k] : order[k];
#if !WARPS
            states[i].pc = thread(C, &states[i], &threads[i]);
#endif
            int at = states[i].pc;
            if (k == 0) first = at, who = i;
            else if (at != first) {
                char more[200];
                snprintf(more, sizeof more, "; thread %u %s, thread %u %s", i, at ? "waits there" : "has ended", who,
                         !first ? "has ended" : at ? "waits at another one" : "waits there");
                fail(C, &threads[at ? i : who], "a barrier that not all threads of the block reach", barrier_site[at ? at : first], more);
            }
            ended += at == 0;
        }
        if (ended) return;
        C->phase++;
    }
}

static int launch(Launch *L) {
    unsigned n = L->block.x * L->block.y * L->block.z, shared_bytes = SHARED_TOTAL + DYNAMIC_SHARED;
    uint64_t blocks = (uint64_t)L->grid.x * L->grid.y * L->grid.z, seed = L->seed * 0x9E3779B97F4A7C15ull | 1;
    Context *C = aligned_alloc(64, (sizeof(Context) + 63) / 64 * 64);
    struct State *states = malloc(n * sizeof(struct State));
    Thread *threads = malloc(n * sizeof(Thread));
    uint32_t *order = malloc(n * sizeof(uint32_t));
    char *locals = calloc(n, LOCAL_STRIDE + 1);
    volatile int failed = 0;
    memset(C, 0, sizeof *C);
    C->shared = aligned_alloc(256, (shared_bytes + 255) / 256 * 256);
    C->launch = L, C->parameters = L->parameters, C->block = L->block, C->grid = L->grid;
    C->span = L->most_steps && L->most_steps < SPAN ? L->most_steps : SPAN;
    for (unsigned i = 0; i < n; i++) {
        order[i] = i, threads[i].linear = i, states[i].local = locals + (size_t)i * LOCAL_STRIDE;
        memset(states[i].local, 0xff, LOCAL_BYTES);
        threads[i].tid = (Dim3){i % L->block.x, i / L->block.x % L->block.y, i / L->block.x / L->block.y};
    }
    for (unsigned i = n; L->seed && --i > 0;) {
        unsigned j = draw(&seed) % (i + 1), t = order[i];
        order[i] = order[j], order[j] = t;
    }
#if RACES
    C->shared_shadow = calloc(shared_bytes / 4 + 1, sizeof(Shadow));
    C->global_shadow = calloc(L->array_count + 1, sizeof *C->global_shadow);
    for (int i = 0; i < L->array_count; i++) { /* the same array given twice has one shadow */
        for (int j = 0; j < i && !C->global_shadow[i]; j++)
            if (L->arrays[j].lo == L->arrays[i].lo && L->arrays[j].hi == L->arrays[i].hi) C->global_shadow[i] = C->global_shadow[j];
        if (!C->global_shadow[i]) C->global_shadow[i] = calloc((L->arrays[i].hi - L->arrays[i].lo) / 4 + 2, sizeof(Shadow));
    }
#endif
    uint64_t from = L->seed ? draw(&seed) % blocks : 0;
    int backwards = L->seed && draw(&seed) & 1;
    if (!setjmp(C->failed))
        for (uint64_t k = 0; k < blocks; k++) {
            uint64_t b = ((backwards ? blocks - 1 - k : k) + from) % blocks;
            C->block_number = b;
            C->ctaid = (Dim3){b % L->grid.x, b / L->grid.x % L->grid.y, b / L->grid.x / L->grid.y};
            one_block(C, states, threads, order, n);
        }
    else
        failed = 1;
#if RACES
    for (int i = L->array_count - 1; i >= 0; i--) {
        int again = 0;
        for (int j = 0; j < i; j++) again |= C->global_shadow[j] == C->global_shadow[i];
        if (!again) free(C->global_shadow[i]);
    }
    free(C->global_shadow), free(C->shared_shadow);
#endif
    free(C->shared), free(C), free(states), free(threads), free(order), free(locals);
    return failed;
}

const KernelInfo emulated_kernel = {PARAMETERS, PARAMETER_BYTES, SHARED_BYTES, MAX_THREADS, parameter_sizes, launch};
