/* The happens-before check: which accesses to the same bytes does nothing order?
 *
 * Every stream and every thread of the host has a lane and counts its pieces of work.  A piece of work has a vector
 * clock: for each lane, the number of its last piece that happened before.  The order of a stream, events, wait values,
 * and what the host has waited for make the clocks; the order in which the pieces happen to run does not.  So one run
 * shows a missing wait, whatever that run's luck. */
#include <stdarg.h>

enum { LANES = 128, FINDINGS = 256 };
typedef struct { uint64_t at[LANES]; } Clock;
typedef struct {
    uint64_t lo, hi, position;
    int lane, write;
    char who[200], what[80]; /* what: the variable of the script, where the work is named by a line of it; else empty */
    uint64_t serial;         /* of that work: the order in which it was given */
} Access;

static Access *history;
static int history_count, history_room, check_order = 1;
static uint64_t lane_position[LANES];
static char lane_used[LANES];

static void join(Clock *into, const Clock *from) {
    for (int i = 0; i < LANES; i++) if (from->at[i] > into->at[i]) into->at[i] = from->at[i];
}
static int new_lane(void) { /* -1: all are in use */
    for (int i = 0; i < LANES; i++) if (!lane_used[i]) return lane_used[i] = 1, i;
    return -1;
}

/* --- Findings ------------------------------------------------------------------------------------------------------- */

static char *findings[FINDINGS];
static int finding_count;
static void find(const char *format, ...) {
    char text[FINDING];
    va_list values;
    va_start(values, format), vsnprintf(text, sizeof text, format, values), va_end(values);
    for (int i = 0; i < finding_count; i++) if (!strcmp(findings[i], text)) return;
    if (finding_count < FINDINGS) findings[finding_count++] = strdup(text);
}

/* --- Accesses --------------------------------------------------------------------------------------------------------- */

static void find_unordered(const Access *a, const Access *b) {
    uint64_t bytes = (a->hi < b->hi ? a->hi : b->hi) - (a->lo > b->lo ? a->lo : b->lo);
    const Access *later = a->serial > b->serial ? a : b, *earlier = later == a ? b : a, *writer = a->write ? a : b, *other = writer == a ? b : a;
    if (a->what[0] && b->what[0])
        find("%s, %s %s; %s, %s %s; %sno wait orders them", later->who, later->write ? "writes" : "reads", later->what, earlier->who,
             earlier->write ? "writes" : "reads", earlier->what,
             strcmp(a->what, b->what) ? "they share bytes, and " : "");
    else
        find("nothing orders two accesses to the same %llu bytes: written by %s; %s by %s", (unsigned long long)bytes, writer->who,
             other->write ? "written" : "read", other->who);
}
/* Note an access to [lo, hi) by the piece of work that is number `position` of a lane and knows `clock`. */
static void accessed(Access a, const Clock *clock) {
    if (!check_order || a.lo >= a.hi) return;
    int kept = 0;
    for (int i = 0; i < history_count; i++) {
        Access *h = &history[i];
        int before = clock->at[h->lane] >= h->position || (h->lane == a.lane && h->position == a.position);
        if (!before && (a.write || h->write) && h->lo < a.hi && a.lo < h->hi) find_unordered(&a, h);
        /* Whatever conflicts with an earlier access inside of this one conflicts with this one, or comes before it. */
        int covered = before && h->lo >= a.lo && h->hi <= a.hi && (a.write || (!h->write && h->lane == a.lane));
        if (!covered) { if (kept != i) history[kept] = *h; kept++; }
    }
    history_count = kept;
    if (history_count == history_room) history = realloc(history, sizeof *history * (history_room = history_room * 2 + 256));
    history[history_count++] = a;
}
static void forget(uint64_t lo, uint64_t hi) { /* the memory is given back */
    int kept = 0;
    for (int i = 0; i < history_count; i++)
        if (!(history[i].lo < hi && lo < history[i].hi)) { if (kept != i) history[kept] = history[i]; kept++; }
    history_count = kept;
}

/* --- The host's threads ----------------------------------------------------------------------------------------------- */

static __thread struct { int lane; Clock clock; } me = {-1, {{0}}};
static pthread_key_t ending;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of everything in this library */
static void thread_ends(void *lane) { pthread_mutex_lock(&lock), lane_used[(intptr_t)lane - 1] = 0, pthread_mutex_unlock(&lock); }
static void make_key(void) { pthread_key_create(&ending, thread_ends); }

/* This thread's clock, one tick later.  The lock is held. */
static const Clock *tick(void) {
    if (me.lane < 0) {
        pthread_once(&once, make_key);
        me.lane = new_lane();
        if (me.lane < 0) me.lane = LANES - 1; /* shared with another: a few orders more are taken for granted */
        else pthread_setspecific(ending, (void *)(intptr_t)(me.lane + 1));
    }
    me.clock.at[me.lane] = ++lane_position[me.lane];
    return &me.clock;
}

/* What a thread knows is given on under a key (an address, say), and taken up under the same key. */
static struct { uint64_t key; Clock clock; } *passed;
static int passed_count;
static Clock *passed_on(uint64_t key) {
    for (int i = 0; i < passed_count; i++) if (passed[i].key == key) return &passed[i].clock;
    passed = realloc(passed, sizeof *passed * (passed_count + 1));
    memset(&passed[passed_count], 0, sizeof *passed);
    passed[passed_count].key = key;
    return &passed[passed_count++].clock;
}
