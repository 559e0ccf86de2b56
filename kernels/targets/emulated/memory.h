/* Allocations: device memory and pinned memory, both memory of the host.
 *
 * Each begins at a page and has a page without access before and after it, so that even an access that no check sees
 * ends the process.  New memory is full of NaN. */
enum { PAGE = 4096 };
typedef struct { uint64_t lo, hi; int pinned, dead; void *mapped; size_t mapped_bytes; } Block;

static Block *blocks;
static int block_count, block_room;
static size_t memory_total = (size_t)8 << 30, memory_used;

static size_t booked(const Block *b) { return b->pinned ? 0 : (b->hi - b->lo + 511) / 512 * 512; }

/* The allocation that holds all of [a, a + bytes); `pinned`: 0 device memory, 1 pinned memory, -1 either. */
static Block *find_block(uint64_t a, uint64_t bytes, int pinned) {
    for (int i = block_count - 1; i >= 0; i--) {
        Block *b = &blocks[i];
        if (!b->dead && (pinned < 0 || b->pinned == pinned) && a >= b->lo && a + bytes <= b->hi) return b;
    }
    return NULL;
}
static uint64_t take(size_t bytes, int pinned) {
    size_t room = (bytes + PAGE - 1) / PAGE * PAGE + 2 * PAGE;
    char *mapped = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return 0;
    mprotect(mapped, PAGE, PROT_NONE), mprotect(mapped + room - PAGE, PAGE, PROT_NONE);
    if (bytes <= (size_t)64 << 20) memset(mapped + PAGE, 0xff, room - 2 * PAGE); /* of larger ones the pages come when touched */
    if (block_count == block_room) blocks = realloc(blocks, sizeof *blocks * (block_room = block_room * 2 + 64));
    int at = 0;
    while (at < block_count && !blocks[at].dead) at++;
    if (at == block_count) block_count++;
    blocks[at] = (Block){(uint64_t)mapped + PAGE, (uint64_t)mapped + PAGE + bytes, pinned, 0, mapped, room};
    memory_used += booked(&blocks[at]);
    return blocks[at].lo;
}
static void release_block(Block *b) {
    memory_used -= booked(b);
    munmap(b->mapped, b->mapped_bytes);
    b->dead = 1;
}
