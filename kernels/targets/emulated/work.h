/* Streams, and the pieces of work in them: what each has to wait for, in which order they are done, and when each would
 * have been done by a model of a GPU. */

enum Kind { COPY_IN, COPY_OUT, COPY_ON, SET, LAUNCH, RECORD, WAIT, WAIT_VALUE, WRITE_VALUE, CALL, IDLE, KINDS };
enum Engine { NONE = -1, COMPUTE, IN, OUT, HOST, ENGINES };
enum { LAZY, EAGER, RANDOM, PRIORITY, FREE };

typedef struct { unsigned offset, axes, item_bytes; char *name; } Argument; /* an array: `emulated_register` */
typedef struct {
    const KernelInfo *info, *races; /* the second looks for races; the same one twice: always or never */
    uint64_t searched[256];          /* launches that have been searched: a hash of the grid and the numbers given */
    char *entry, *name;
    int array_count;
    Argument *arrays;
} Code;
typedef struct { char *entry; Code *code; } Kernel;
typedef struct Stream Stream;
typedef struct Work {
    enum Kind kind;
    int references, done;
    Stream *stream;
    struct Work *next, *next_issued, **after, *time_after;
    int after_count;
    uint64_t position, serial, to, from, bytes;
    unsigned flags;
    void *staged;
    void (*call)(void *);
    void *data;
    Code *code;
    Dim3 grid, block;
    char *parameters;
    unsigned dynamic_shared_bytes;
    Clock clock; /* what the thread that gave it knew; once it is done, all that happened before it, and itself */
    char label[120], names[600]; /* `next_work` */
    double seconds, earliest, start, end; /* on the model's clock; seconds < 0: measured */
    enum Engine engine;
} Work;
struct Stream {
    unsigned flags;
    int lane, dead;
    Work *head, *tail, *last; /* waiting; the last that was given to it */
    Clock clock;              /* of the last that is done */
    double now, priority;
};
typedef struct { Work *record; unsigned flags; int dead; } Event;

static Stream legacy = {0}, *streams[LANES] = {&legacy};
static int stream_count = 1, busy, order_mode = LAZY, sticky;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static uint64_t serial, seed, state = 1, executed[KINDS];
static double patience = 120, kernel_seconds, link_rate = 12e9;
/* What Python says of the work that this thread gives: its name, its seconds, and the variables of the script's line that gives it, each
 * after the address of its array or its stream: "\n7f00 images\n". */
static __thread struct { char label[120], names[600]; double seconds; } next_work = {"", "", -1};
static void (*about_to_give)(void); /* tells Python that work is given, so that it can say so */
static __thread int learns_nothing; /* whether this thread's waits are left out of the happens-before check */

static double seconds_of(clockid_t which) { struct timespec t; clock_gettime(which, &t); return t.tv_sec + t.tv_nsec * 1e-9; }
static uint64_t most_steps = (uint64_t)1 << 30; /* of a thread of a kernel */

/* --- Signals: Python runs their handlers between two of its lines, but a kernel, and a wait for the device, is one line --- */

static volatile int stopping, raising; /* a kernel on the device's thread is to end; an exception waits to be raised */
static struct {
    int (*check)(void), (*ensure)(void), (*later)(int (*)(void *), void *);
    void (*release)(int), (*fetch)(void **, void **, void **), (*restore)(void *, void *, void *);
    void *raised[3];
} python;
static int raise_again(void *unused) { /* in Python, as soon as the driver has returned */
    raising = 0;
    python.restore(python.raised[0], python.raised[1], python.raised[2]);
    return -1;
}
/* Whether a handler has raised an exception, as that of Ctrl-C does: what runs is to stop.  The lock is not held. */
static int interrupted(void) {
    static double looked;
    double now = seconds_of(CLOCK_MONOTONIC);
    if (getpid() != (int)syscall(SYS_gettid)) return stopping; /* handlers run in the main thread alone */
    if (now - looked < 0.05 || raising) return raising;
    looked = now;
    if (!python.restore) {
        python.check = dlsym(RTLD_DEFAULT, "PyErr_CheckSignals"), python.later = dlsym(RTLD_DEFAULT, "Py_AddPendingCall");
        python.ensure = dlsym(RTLD_DEFAULT, "PyGILState_Ensure"), python.release = dlsym(RTLD_DEFAULT, "PyGILState_Release");
        python.fetch = dlsym(RTLD_DEFAULT, "PyErr_Fetch"), python.restore = dlsym(RTLD_DEFAULT, "PyErr_Restore");
        if (!python.restore) return 0; /* the program is not Python's */
    }
    int state = python.ensure();
    if (python.check()) {
        python.fetch(&python.raised[0], &python.raised[1], &python.raised[2]);
        raising = 1, python.later(raise_again, NULL);
    }
    python.release(state);
    return raising;
}
/* What a call returns: after a signal no error, since Python raises the handler's exception. */
static int status(void) { return raising ? SUCCESS : sticky; }

static uint64_t draw(void) { return state ^= state << 13, state ^= state >> 7, state ^= state << 17; }
static Stream *as_stream(Stream *s) { return (uintptr_t)s <= 2 ? &legacy : s; } /* 0, 1 and 2 are the default stream */

static void release_work(Work *w) {
    if (!w || --w->references) return;
    free(w->after), free(w);
}
static Work *keep(Work *w) { if (w) w->references++; return w; }

/* --- The model's clock: worked out in the order of issue, as soon as everything given before is done -------------------- */

static Work *issued_first, *issued_last;
static double engine_free[ENGINES], host_now;
static void settle(void) {
    for (Work *w; (w = issued_first) && w->done;) {
        double start = w->earliest;
        if (w->stream) { if (w->stream->now > start) start = w->stream->now; }
        else /* all streams stall */
            for (int i = 0; i < stream_count; i++) if (streams[i]->now > start) start = streams[i]->now;
        for (int i = 0; i < w->after_count; i++) if (w->after[i]->end > start) start = w->after[i]->end;
        if (w->time_after && w->time_after->end > start) start = w->time_after->end;
        if (w->engine >= 0 && engine_free[w->engine] > start) start = engine_free[w->engine];
        w->start = start, w->end = start + (w->seconds > 0 ? w->seconds : 0);
        if (w->engine >= 0) engine_free[w->engine] = w->end;
        if (w->stream) w->stream->now = w->end;
        else for (int i = 0; i < stream_count; i++) streams[i]->now = w->end;
        for (int i = 0; i < w->after_count; i++) release_work(w->after[i]);
        release_work(w->time_after);
        w->after_count = 0, w->time_after = NULL;
        if (!(issued_first = w->next_issued)) issued_last = NULL;
        release_work(w);
    }
}
static void issue(Work *w) {
    w->references++;
    if (issued_last) issued_last->next_issued = w;
    else issued_first = w;
    issued_last = w;
    w->earliest = host_now;
}

/* --- Doing one piece of work ---------------------------------------------------------------------------------------------- */

static int ready(const Work *w) {
    for (int i = 0; i < w->after_count; i++) if (!w->after[i]->done) return 0;
    if (sticky || w->kind != WAIT_VALUE) return 1; /* after an error nothing is waited for */
    uint32_t value = *(volatile uint32_t *)w->to, wanted = (uint32_t)w->from;
    switch (w->flags & 3) {
    case 0: return (int32_t)(value - wanted) >= 0;
    case 1: return value == wanted;
    case 2: return (value & wanted) != 0;
    default: return ~(value | wanted) != 0;
    }
}
/* The variable that has an array at an address, or is the stream there, in backquotes; false: the line has none. */
static int named(const Work *w, uint64_t address, char *name, int size) {
    char key[24];
    snprintf(key, sizeof key, "\n%llx ", (unsigned long long)address);
    const char *found = strstr(w->names, key);
    if (found) found += strlen(key), snprintf(name, size, "`%.*s`", (int)strcspn(found, "\n"), found);
    return found != NULL;
}
static void touch(const Work *w, uint64_t lo, uint64_t bytes, int write, const char *what) {
    Access a = {lo, lo + bytes, w->position, w->stream->lane, write, "", "", w->serial};
    char stream[80];
    if (!named(w, (uintptr_t)w->stream, stream, sizeof stream)) snprintf(stream, sizeof stream, "stream %d", w->stream->lane);
    if (named(w, lo, a.what, sizeof a.what)) snprintf(a.who, sizeof a.who, "%s on %s", w->label, stream);
    else snprintf(a.who, sizeof a.who, "%s%s%s on %s", what, w->label[0] ? ", " : "", w->label, stream);
    accessed(a, &w->clock);
}
/* The arrays among a launch's arguments.  Numba lays one out as two pointers, items, bytes of an item, address, shape, strides; MLIR as a
 * pointer, the address, items before the first, shape, strides in items. */
static int arrays_of(const Work *w, Array *found) {
    for (int i = 0; i < w->code->array_count; i++) {
        Argument a = w->code->arrays[i];
        const int64_t *words = (const int64_t *)(w->parameters + a.offset), *shape = words + (a.item_bytes ? 3 : 5);
        int64_t item = a.item_bytes ? a.item_bytes : words[3], unit = a.item_bytes ? item : 1, items = 1;
        int64_t low = a.item_bytes ? words[1] + words[2] * item : words[4], high = low + item;
        for (unsigned axis = 0; axis < a.axes; axis++) {
            int64_t reach = (shape[axis] - 1) * shape[a.axes + axis] * unit;
            *(reach < 0 ? &low : &high) += reach, items *= shape[axis];
        }
        found[i] = (Array){low, items ? high : low, a.name, 0, 0};
    }
    return w->code->array_count;
}
/* Whether a launch is to be searched for races: the first of its kind.  An array's address is no part of the kind. */
static int to_be_searched(const Work *w) {
    if (w->code->info == w->code->races) return 0;
    uint64_t hash = (w->grid.x * 31ull + w->grid.y) * 31 + w->grid.z + 1;
    for (unsigned i = 0, at = 0; i < w->code->info->parameter_count; at += w->code->info->parameter_sizes[i++]) {
        unsigned bytes = w->code->info->parameter_sizes[i] > 8 ? 8 : w->code->info->parameter_sizes[i];
        at = (at + bytes - 1) / bytes * bytes;
        uint64_t value = 0;
        memcpy(&value, w->parameters + at, bytes);
        for (int n = 0; n < w->code->array_count; n++) {
            Argument a = w->code->arrays[n];
            if (a.item_bytes ? at == a.offset || at == a.offset + 8 : at == a.offset + 32) value = 0;
        }
        if (bytes == 4) continue; /* a number that says how much, not how many: a rate, an iteration's seed */
        hash = (hash ^ value) * 0x100000001B3ull;
    }
    uint64_t *place = &w->code->searched[hash % 256];
    return *place == hash ? 0 : (*place = hash, 1);
}
static void run_kernel(Work *w) {
    Array arrays[64];
    char finding[FINDING] = "", who[160];
    Launch launch = {w->grid, w->block, w->code->name, w->parameters, arrays, arrays_of(w, arrays), w->dynamic_shared_bytes,
                     seed ? seed * 7919 + w->serial : 0, finding, most_steps, interrupted};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < launch.array_count && !finding[0]; i++)
        if (arrays[i].hi > arrays[i].lo && !find_block(arrays[i].lo, arrays[i].hi - arrays[i].lo, -1))
            snprintf(finding, sizeof finding, "kernel %s%s%s: its array %s is in no memory of the GPU that is allocated", w->code->name,
                     w->label[0] ? ", " : "", w->label, arrays[i].name);
    pthread_mutex_unlock(&lock);
    double began = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    int failed = finding[0] || (to_be_searched(w) ? w->code->races : w->code->info)->launch(&launch);
    double took = seconds_of(CLOCK_THREAD_CPUTIME_ID) - began;
    pthread_mutex_lock(&lock);
    kernel_seconds += took, stopping = 0;
    if (w->seconds < 0) w->seconds = took;
    if (failed) find("%s", finding), sticky = ILLEGAL_ADDRESS;
    for (int i = 0; i < launch.array_count; i++) {
        snprintf(who, sizeof who, "kernel %s (its array %s)", w->code->name, arrays[i].name);
        if (arrays[i].read) touch(w, arrays[i].lo, arrays[i].hi - arrays[i].lo, 0, who);
        if (arrays[i].written) touch(w, arrays[i].lo, arrays[i].hi - arrays[i].lo, 1, who);
    }
    pthread_mutex_unlock(&lock);
}
static void perform_copy(Work *w) {
    static const char *const names[] = {"a copy in", "a copy out", "a copy on the device", "a fill"};
    const char *name = names[w->kind];
    int from_device = w->kind == COPY_OUT || w->kind == COPY_ON, to_device = w->kind != COPY_OUT;
    pthread_mutex_lock(&lock);
    if ((from_device && !find_block(w->from, w->bytes, 0)) || (to_device && !find_block(w->to, w->bytes, 0))) {
        find("%s of %llu bytes%s%s reaches outside of every allocation on the device", name, (unsigned long long)w->bytes,
             w->label[0] ? ", " : "", w->label);
        sticky = ILLEGAL_ADDRESS;
    } else {
        if (w->kind != SET && !w->staged && find_block(w->from, w->bytes, -1)) touch(w, w->from, w->bytes, 0, name);
        if (find_block(w->to, w->bytes, -1)) touch(w, w->to, w->bytes, 1, name);
    }
    pthread_mutex_unlock(&lock);
    if (sticky) return;
    if (w->kind == SET) memset((void *)w->to, (int)w->from, w->bytes);
    else memmove((void *)w->to, w->staged ? w->staged : (void *)w->from, w->bytes);
    if (w->seconds < 0) w->seconds = w->kind == SET ? 0 : 2e-6 + w->bytes / link_rate;
}
static void perform(Work *w) {
    Stream *s = w->stream;
    pthread_mutex_lock(&lock);
    join(&w->clock, &s->clock);
    for (int i = 0; i < w->after_count; i++) join(&w->clock, &w->after[i]->clock);
    if (w->kind == WAIT_VALUE) join(&w->clock, passed_on(w->to + (w->from << 48))); /* what the host knew when it wrote this value */
    w->clock.at[s->lane] = w->position;
    executed[w->kind]++;
    pthread_mutex_unlock(&lock);
    if (w->kind == CALL) w->call(w->data);
    else if (sticky) return; /* as on a GPU: after an error nothing more is done */
    else if (w->kind <= SET) perform_copy(w);
    else if (w->kind == LAUNCH && w->code) run_kernel(w);
    else if (w->kind == WRITE_VALUE) *(volatile uint32_t *)w->to = (uint32_t)w->from;
}
/* Do the first work of a stream.  The lock is held, and given up meanwhile. */
static void step(Stream *s) {
    Work *w = s->head;
    busy = 1;
    pthread_mutex_unlock(&lock);
    perform(w);
    pthread_mutex_lock(&lock);
    busy = 0;
    if (!(s->head = w->next)) s->tail = NULL;
    s->clock = w->clock, w->done = 1;
    free(w->staged), free(w->parameters);
    w->staged = w->parameters = NULL;
    release_work(w);
    settle();
    pthread_cond_broadcast(&moved);
}

/* --- Who is next ------------------------------------------------------------------------------------------------------------ */

/* The stream whose first work has to be done for `s` to get on; NULL if the host has to act first. */
static Stream *blocker(Stream *s, int depth) {
    Work *w = s->head;
    if (!w || depth > LANES) return NULL;
    if (ready(w)) return s;
    for (int i = 0; i < w->after_count; i++) if (!w->after[i]->done) return blocker(w->after[i]->stream, depth + 1);
    return NULL;
}
static Stream *choose(Stream *wanted) {
    if (order_mode == LAZY && wanted) return blocker(wanted, 0);
    Stream *best = NULL;
    unsigned count = 0;
    if (order_mode == PRIORITY && draw() % 16 == 0) streams[draw() % stream_count]->priority = draw() % 1000000;
    for (int i = 0; i < stream_count; i++) {
        Stream *s = streams[i];
        if (!s->head || !ready(s->head)) continue;
        count++;
        int better = order_mode == RANDOM     ? draw() % count == 0
                     : order_mode == PRIORITY ? !best || s->priority > best->priority
                                              : !best || s->head->serial < best->head->serial;
        if (better) best = s;
    }
    return best;
}
static void *device_thread(void *unused) { /* of FREE: the device goes on by itself, as soon as it can */
    (void)unused;
    pthread_mutex_lock(&lock);
    for (;;) {
        Stream *next = busy || order_mode != FREE ? NULL : choose(NULL);
        if (next) { step(next); continue; }
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        if ((t.tv_nsec += 100000) >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
        pthread_cond_timedwait(&moved, &lock, &t);
    }
    return NULL;
}
/* This thread has waited for something: it knows what happened before.  The lock is held. */
static void learn(const Clock *clock) {
    tick();
    if (!learns_nothing) join(&me.clock, clock);
}
/* Wait until a piece of work is done.  The lock is held. */
static Result until(Work *w) {
    double began = seconds_of(CLOCK_MONOTONIC);
    keep(w);
    while (!w->done) {
        Stream *next = busy ? NULL : choose(w->stream);
        if (next) { step(next), began = seconds_of(CLOCK_MONOTONIC); continue; }
        pthread_mutex_unlock(&lock);
        int ended = interrupted();
        pthread_mutex_lock(&lock);
        if (ended) {
            stopping = busy;
            return release_work(w), SUCCESS;
        }
        if (seconds_of(CLOCK_MONOTONIC) - began > patience) {
            find("nothing has happened for %g seconds: stream %d waits for what never comes", patience, w->stream->lane);
            release_work(w);
            return sticky = TIMEOUT;
        }
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        if ((t.tv_nsec += 200000) >= 1000000000) t.tv_nsec -= 1000000000, t.tv_sec++;
        pthread_cond_timedwait(&moved, &lock, &t);
    }
    learn(&w->clock);
    if (!issued_first || w->serial < issued_first->serial) { if (w->end > host_now) host_now = w->end; }
    release_work(w);
    return status();
}
static Result drain(void) {
    Result r = status();
    for (int i = 0; i < stream_count; i++) if (streams[i]->last) r = until(streams[i]->last);
    return r;
}

/* --- Giving work to a stream -------------------------------------------------------------------------------------------------- */

static Work *make(enum Kind kind, enum Engine engine) {
    Work *w = calloc(1, sizeof *w);
    if (about_to_give && kind <= LAUNCH) about_to_give();
    w->kind = kind, w->engine = engine, w->references = 1; /* the stream's, until it is done */
    w->seconds = next_work.seconds;
    memcpy(w->label, next_work.label, sizeof w->label), memcpy(w->names, next_work.names, sizeof w->names);
    return w;
}
static void wait_for(Work *w, Work *other) {
    if (!other) return;
    w->after = realloc(w->after, sizeof *w->after * (w->after_count + 1));
    w->after[w->after_count++] = keep(other);
}
/* The lock is held. */
static void give(Stream *s, Work *w) {
    static pthread_t runner;
    w->stream = s, w->serial = ++serial, w->position = ++lane_position[s->lane];
    join(&w->clock, tick());
    if (s == &legacy) { /* the default stream waits for all blocking streams, and they for it */
        for (int i = 1; i < stream_count; i++) if (!(streams[i]->flags & 1)) wait_for(w, streams[i]->last);
    } else if (!(s->flags & 1)) wait_for(w, legacy.last);
    if (s->tail) s->tail->next = w;
    else s->head = w;
    s->tail = w;
    release_work(s->last), s->last = keep(w);
    issue(w);
    if (order_mode == FREE) {
        if (!runner) pthread_create(&runner, NULL, device_thread, NULL);
        pthread_cond_broadcast(&moved);
    }
    if (order_mode == EAGER && !busy) for (Stream *next; (next = choose(NULL));) step(next);
}
static Result given(Stream *s, Work *w) {
    pthread_mutex_lock(&lock);
    give(s, w);
    Result r = status();
    pthread_mutex_unlock(&lock);
    return r;
}
static Result given_and_done(Stream *s, Work *w) {
    pthread_mutex_lock(&lock);
    keep(w), give(s, w);
    Result r = until(w);
    release_work(w);
    pthread_mutex_unlock(&lock);
    return r;
}
