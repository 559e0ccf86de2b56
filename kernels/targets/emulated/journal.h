/* What the host has asked of the driver, for the tests of the host's code (tests/host).
 *
 * With `emulated_keep_books` launches compute nothing, no kernel has to be translated, and every call is noted: so what
 * is left is what the host does, and the time that it takes. */
enum { NOTES = 1 << 16, RECORDS = 1024, MOST_PARAMETERS = 128 };

typedef struct { /* one piece of work given to a stream, or an allocation or a free, on no stream */
    char what[16];
    void *stream;
    uint64_t device, host, bytes; /* of a copy; a wait for a value: its place, the value, how it is compared */
    void *event;                  /* of a record or a wait */
} Note;
typedef struct { /* a launch */
    const char *kernel;
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    unsigned parameter_count;
    uint64_t parameters[MOST_PARAMETERS];
} Record;

static Note notes[NOTES];
static Record records[RECORDS];
static long noted, launches, allocations, frees, created; /* created: streams and events */
static int books;
static volatile int slowness;            /* microseconds that a launch and a synchronisation take */
static char layout[MOST_PARAMETERS + 1]; /* bytes of each parameter of the launches to come, as digits */

static void note(const char *what, void *stream, uint64_t device, uint64_t host, uint64_t bytes, void *event) {
    if (!books) return;
    Note *made = &notes[noted++ % NOTES];
    *made = (Note){"", stream, device, host, bytes, event};
    snprintf(made->what, sizeof made->what, "%s", what);
}
static void note_launch(const char *kernel, const unsigned *grid, const unsigned *block, unsigned shared_bytes, void *stream, void **parameters) {
    if (!books) return;
    Record *record = &records[launches++ % RECORDS];
    *record = (Record){kernel, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared_bytes, stream, strlen(layout)};
    for (unsigned i = 0; i < record->parameter_count; i++) memcpy(&record->parameters[i], parameters[i], layout[i] - '0');
    note("launch", stream, 0, 0, 0, NULL);
}
static void slow(void) { if (slowness) usleep(slowness); }

void emulated_keep_books(int whether) { books = whether, fresh = whether ? 0 : 0xff; } /* a loss that no kernel computes is a number */
long emulated_launches(void) { return launches; }
long emulated_allocations(void) { return allocations; }
long emulated_frees(void) { return frees; }
long emulated_created(void) { return created; }
long emulated_noted(void) { return noted; }
const Note *emulated_note(long number) { return &notes[number % NOTES]; }
const Record *emulated_record(long number) { return &records[number % RECORDS]; }
void emulated_slow(int microseconds) { slowness = microseconds; }
/* From now on, note the values of parameters too.  A driver reads their sizes in the machine code; here they are told. */
void emulated_layout(const char *sizes) { snprintf(layout, sizeof layout, "%s", sizes); }
