/* Pages of a block that the program moves elsewhere or unmaps are there for the block's next owner,
   and zero for calloc. Until then the kernel maps nothing there. Argument 1: the bytes of a block;
   2: "met", or "may-miss" if the addresses need not come back. */
#include "check.h"
#include <sys/mman.h>

/* Linux 5.7; older headers lack it. */
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

enum { MOST = 256 };

static size_t size;
/* Where blocks are sampled, the addresses may come back much later. */
static int may_miss;

/* The kernel chooses the highest free address, so it maps below the hole once it has passed it. */
static void keeps_clear_of(const char *hole, size_t bytes) {
    enum { TRIES = 512 };
    char *mapped[TRIES], *lowest = (char *)-1;
    int count = 0;
    while (count < TRIES && lowest > hole) {
        char *page = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(page != MAP_FAILED && (page < hole || page >= hole + bytes));
        mapped[count++] = lowest = page;
    }
    while (count > 0) CHECK(munmap(mapped[--count], PAGE) == 0);
}

static void unmapped(char *at, size_t bytes) {
    CHECK(munmap(at, bytes) == 0);
    keeps_clear_of(at, bytes);
}

static void *somewhere(size_t bytes) {
    void *place = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(place != MAP_FAILED);
    return place;
}

/* mremap. Before Linux 6.17 the kernel moves pages of one mapping only, and huge pages may have
   split the block's. Then the caller moves one page. */
static char *remap(char *at, size_t bytes, size_t wanted, int flags, char *place) {
    char *moved = mremap(at, bytes, wanted, flags, place);
    CHECK(moved != MAP_FAILED || (errno == EFAULT && bytes > PAGE) || errno == EINVAL);
    return moved;
}

static void moved(char *at, size_t bytes) {
    char *place = somewhere(bytes);
    char *moved_to = remap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    if (moved_to == MAP_FAILED) {
        bytes = PAGE;
        moved_to = remap(at, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    }
    CHECK(moved_to == place && place[0] == 1 && munmap(place, bytes) == 0);
    keeps_clear_of(at, bytes);
}

static void moved_and_left(char *at, size_t bytes) {
    char *place = somewhere(bytes);
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    if (remap(at, bytes, bytes, flags, place) == MAP_FAILED && errno == EFAULT)
        remap(at, PAGE, PAGE, flags, place);
    CHECK(munmap(place, bytes) == 0);
}

static void shrunk(char *at, size_t bytes) { CHECK(mremap(at, bytes, PAGE, 0) == at); }

static void grown(char *at, size_t bytes) {
    char *place = remap(at, bytes, 4 * bytes, MREMAP_MAYMOVE, NULL);
    if (place == MAP_FAILED) {
        bytes = PAGE;
        place = remap(at, bytes, 4 * bytes, MREMAP_MAYMOVE, NULL);
    }
    CHECK(place != MAP_FAILED && place != at && munmap(place, 4 * bytes) == 0);
}

/* Blocks are taken until the former one's addresses have come back. */
static void next_owner(const char *before) {
    char *blocks[MOST];
    int count = 0, met = 0;
    while (!met && count < MOST) {
        int zeroed = count % 2;
        char *block = zeroed ? calloc(1, size) : malloc(size);
        CHECK(block != NULL);
        blocks[count++] = block;
        for (size_t at = 0; zeroed && at < size; at += 64) CHECK(block[at] == 0);
        memset(block, 2, size);
        met = block < before + size && before < block + size;
    }
    CHECK(met || may_miss);
    while (count > 0) free(blocks[--count]);
}

int main(int count, char **arguments) {
    static void (*const ways[])(char *, size_t) = {unmapped, moved, moved_and_left, shrunk, grown};
    CHECK(count == 3 && served_by_neap("malloc"));
    may_miss = !strcmp(arguments[2], "may-miss");
    size = strtoul(arguments[1], NULL, 10);
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (int round = 0; round < 4; round++) {
            char *block = malloc(size);
            CHECK(block != NULL);
            memset(block, 1, size);
            char *from = (char *)(((uintptr_t)block + PAGE - 1) & -PAGE);
            char *to = (char *)(((uintptr_t)block + size) & -PAGE);
            if (from < to) ways[way](from, (size_t)(to - from));
            free(block);
            next_owner(block);
        }
    return 0;
}
