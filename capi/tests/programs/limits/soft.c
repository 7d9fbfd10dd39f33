/* A soft limit, argument 2 in bytes. Argument 1, below: live bytes stay at 60 % of it while all
   blocks become others of another size, in random order, and resident memory never passes it.
   Above: more is live than that, and what is freed beside it does not stay. */
#include "../purge/purge.h"

/* How far the limit may be passed. The library lets the heap grow by 1 MiB before callers wait for
   each other. A caller looks at the limit at every second refill, of some KiB each. What is no
   block's comes up after the start: records of slabs, the stack of the purge thread, pages of
   libraries, less than 1 MiB in all. A library that knows no limit passes it by 30 MiB. */
enum { OVER = 6 * MIB };

static size_t at_start, limit;
static unsigned state = 1;

static size_t below(size_t bound) {
    state = state * 1664525 + 1013904223;
    return (size_t)((unsigned long long)state * bound >> 32);
}

/* What the heap has resident: the program's tables were there at the start. */
static void stays_under(size_t most) {
    size_t now = resident();
    if (now <= at_start + most) return;
    dprintf(2, "%zu KiB resident over the start, %zu KiB allowed\n", (now - at_start) >> 10, most >> 10);
    CHECK(!"under the limit");
}

static void *taken(size_t bytes) {
    void *block = malloc(bytes);
    CHECK(block);
    return memset(block, 0x5a, bytes);
}

static void **old, **fresh;
static size_t olds, freshes;

/* Frees blocks of `old_size` in random order, and takes as many bytes of `size`. */
static void change(size_t old_size, size_t size) {
    size_t freed = 0, had = 0, steps = 0;
    freshes = 0;
    while (olds > 0) {
        size_t which = below(olds);
        free(old[which]);
        old[which] = old[--olds];
        for (freed += old_size; had + size <= freed; had += size) fresh[freshes++] = taken(size);
        if (++steps % 256 == 0) stays_under(limit + OVER);
    }
    void **table = old;
    old = fresh, fresh = table, olds = freshes;
}

/* A page that holds one block of many stays resident, so larger pages take larger blocks. */
static void churn(void) {
    size_t sizes[] = {1024, 1280, 2048, 1536, 4096, 1024};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) sizes[i] *= sysconf(_SC_PAGESIZE) / 4096;
    size_t live = limit / 10 * 6;
    for (olds = 0; (olds + 1) * sizes[0] <= live; olds++) old[olds] = taken(sizes[0]);
    stays_under(limit + OVER);
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i + 1 < sizeof sizes / sizeof *sizes; i++) change(sizes[i], sizes[i + 1]);
    while (olds > 0) free(old[--olds]);
}

/* `kept` is live, and a quarter as much comes and goes. */
static void above(void) {
    size_t kept = limit / 2 * 3, extra = limit / 4;
    struct block *live = fill(kept);
    for (int turn = 0; turn < 6; turn++) {
        if (turn % 2) free(taken(extra));
        else empty(fill(extra));
        free(taken(100000)); /* whoever comes next */
        stays_under(kept + ALLOWANCE);
    }
    empty(live);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    limit = strtoul(arguments[2], NULL, 10);
    size_t room = limit / 1024 * sizeof *old;
    old = taken(room), fresh = taken(room);
    at_start = resident();
    if (!strcmp(arguments[1], "above")) return above(), 0;
    CHECK(!strcmp(arguments[1], "below"));
    return churn(), 0;
}
