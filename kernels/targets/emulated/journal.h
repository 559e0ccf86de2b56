/* What the host has asked of the driver, for the tests of the host's code (tests/host).
 *
 * With `emulated_keep_books` launches compute nothing, no kernel has to be translated, and every launch is noted: so
 * what is left is what the host does, and the time that it takes. */
enum { RECORDS = 1024, MOST_PARAMETERS = 128 };

typedef struct { /* a launch */
    const char *kernel;
    unsigned grid[3], block[3], shared_bytes;
    void *stream;
    unsigned parameter_count;
    uint64_t parameters[MOST_PARAMETERS];
} Record;

static Record records[RECORDS];
static long launches, allocations;
static int books;
static volatile int slowness;            /* microseconds that a launch and a synchronisation take */
static char layout[MOST_PARAMETERS + 1]; /* bytes of each parameter of the launches to come, as digits */

static void note_launch(const char *kernel, const unsigned *grid, const unsigned *block, unsigned shared_bytes, void *stream, void **parameters) {
    if (!books) return;
    Record *record = &records[launches++ % RECORDS];
    *record = (Record){kernel, {grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared_bytes, stream, strlen(layout)};
    for (unsigned i = 0; i < record->parameter_count; i++) memcpy(&record->parameters[i], parameters[i], layout[i] - '0');
}
static void slow(void) { if (slowness) usleep(slowness); }

void emulated_keep_books(int whether) { books = whether; }
long emulated_launches(void) { return launches; }
long emulated_allocations(void) { return allocations; }
const Record *emulated_record(long number) { return &records[number % RECORDS]; }
void emulated_slow(int microseconds) { slowness = microseconds; }
/* From now on, note the values of parameters too.  A driver reads their sizes in the machine code; here they are told. */
void emulated_layout(const char *sizes) { snprintf(layout, sizeof layout, "%s", sizes); }
