/* calloc touches nothing that is zero: counted in page faults and resident memory, never in
   time. */
#include "resident.h"
#include <sys/resource.h>

#define MIB (1ul << 20)

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

/* calloc and free of `bytes`, writing to the first `touched` of them. */
static void round_of(size_t bytes, size_t touched) {
    volatile char *block = calloc(1, bytes);
    CHECK(block != NULL);
    for (size_t at = 0; at < touched; at += 4096) {
        CHECK(block[at] == 0);
        block[at] = 1;
    }
    free((void *)block);
}

/* Whether rounds take few faults, and leave nothing. */
static int are_cheap(size_t bytes, size_t touched, long most_faults) {
    const int rounds = 200;
    for (int i = 0; i < 20; i++)
        round_of(bytes, touched);
    long faults_before = faults();
    size_t before = resident();
    for (int i = 0; i < rounds; i++)
        round_of(bytes, touched);
    return faults() - faults_before <= most_faults * rounds + 20 && resident() <= before + MIB / 4;
}

/* The kernel makes a process fault where it moves pages, between nodes for example. Not each
   time. */
static void many_rounds(size_t bytes, size_t touched, long most_faults) {
    for (int tries = 10; !are_cheap(bytes, touched, most_faults); tries--)
        CHECK(tries > 1);
}

/* Blocks of slabs that were never handed out: nothing is written to them. */
static void fresh_blocks(size_t bytes) {
    enum { COUNT = 1000 };
    static char *blocks[COUNT];
    long before = faults();
    for (int i = 0; i < COUNT; i++)
        CHECK((blocks[i] = calloc(1, bytes)) != NULL);
    CHECK(faults() - before < COUNT / 2);
    for (int i = 0; i < COUNT; i++)
        for (size_t at = 0; at < bytes; at++)
            CHECK(blocks[i][at] == 0);
    for (int i = 0; i < COUNT; i++)
        memset(blocks[i], 1, bytes);
    /* What was handed out once is written, whichever way it comes back. */
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = i % 2 ? calloc(1, bytes) : malloc(bytes)) != NULL);
        for (size_t at = 0; i % 2 && at < bytes; at++)
            CHECK(blocks[i][at] == 0);
        memset(blocks[i], 1, bytes);
    }
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
}

int main(void) {
    CHECK(served_by_neap("calloc"));
    /* First, while the heap is new. */
    fresh_blocks(4096);
    fresh_blocks(20000);
    fresh_blocks(32768);
    const size_t sizes[] = {MIB, 10 * MIB, 100 * MIB, 1000 * MIB};
    for (int i = 0; i < 4; i++) {
        many_rounds(sizes[i], 0, 0);
        many_rounds(sizes[i], 65536, 2);
    }
    return 0;
}
