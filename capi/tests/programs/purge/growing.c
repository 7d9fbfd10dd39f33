/* A program that takes fresh memory again and again, so that what is free gives way at once each
   time: what idles inside slabs in use goes home all the same. */
#include "purge.h"
#include <stdint.h>
#include <sys/mman.h>

enum { SMALL = 40000, KEPT_ONE_IN = 16, TURNS = 40, LARGE = 5 * MIB, A_TURN = LARGE / 65536, PIECE = 60000 };

static char *blocks[SMALL], *pieces[2 * A_TURN * TURNS], *grown[TURNS];

/* Of the pages that the blocks lay in, how many in a hundred are resident. */
static int percent_resident(void) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE), here = 0;
    for (int block = 0; block < SMALL; block++) {
        unsigned char resident;
        void *start = (void *)((uintptr_t)blocks[block] / page * page);
        CHECK(mincore(start, page, &resident) == 0);
        here += resident & 1;
    }
    return (int)(here * 100 / SMALL);
}

static void *taken(size_t bytes) {
    char *block = malloc(bytes);
    CHECK(block);
    return memset(block, 0x5a, bytes);
}

int main(void) {
    if (sysconf(_SC_PAGESIZE) != 4096) return 0; /* larger pages hold a kept block each */
    for (size_t piece = 0; piece < sizeof pieces / sizeof *pieces; piece++) pieces[piece] = taken(PIECE);
    for (int block = 0; block < SMALL; block++) blocks[block] = taken(BLOCK);
    with_purge_thread();
    for (int block = 0; block < SMALL; block++)
        if (block % KEPT_ONE_IN) free(blocks[block]);
    for (int turn = 0; turn < TURNS; turn++) {
        if (turn % 10 == 9 && percent_resident() <= 50) break;
        /* Free pages in places too small for what is taken then. */
        for (int piece = 0; piece < A_TURN; piece++) free(pieces[2 * (turn * A_TURN + piece)]);
        grown[turn] = taken(LARGE);
        long before = switches_so_far();
        nap(20);
        /* A thread without a processor is waited for. */
        for (int waited = 0; waited < 1000 && switches_so_far() == before; waited += 5) nap(5);
    }
    CHECK(percent_resident() <= 50);
    return 0;
}
