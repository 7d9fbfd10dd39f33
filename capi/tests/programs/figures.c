/* mallinfo2 and mallinfo tell what is live, in every mode: small blocks, large ones, freed ones. */
#include "check.h"
#include <malloc.h>

#define MIB (1ul << 20)
enum { BLOCKS = 1000, BYTES = 1000 };

static int about(size_t value, size_t expected) {
    return value >= expected && value <= expected + expected / 4;
}

static void adds_up(struct mallinfo2 now) {
    CHECK(now.arena == now.uordblks + now.fordblks);
}

int main(void) {
    static void *blocks[BLOCKS];
    CHECK(served_by_neap("mallinfo2"));
    struct mallinfo2 before = mallinfo2();
    for (int i = 0; i < BLOCKS; i++)
        CHECK((blocks[i] = malloc(hidden(BYTES))) != NULL);
    void *large = malloc(hidden(8 * MIB)), *gone = malloc(hidden(16 * MIB));
    struct mallinfo2 full = mallinfo2();
    adds_up(full);
    CHECK(about(full.uordblks - before.uordblks, BLOCKS * BYTES));
    CHECK(full.hblks == before.hblks + 2);
    CHECK(full.hblkhd - before.hblkhd == 24 * MIB);
    free(gone);
    struct mallinfo2 now = mallinfo2();
    adds_up(now);
    CHECK(about(now.uordblks - before.uordblks, BLOCKS * BYTES));
    CHECK(now.hblks == before.hblks + 1);
    CHECK(now.hblkhd - before.hblkhd == 8 * MIB);
    struct mallinfo narrow = mallinfo();
    CHECK(narrow.hblks == (int)now.hblks && narrow.hblkhd == (int)now.hblkhd);
    CHECK(narrow.uordblks == (int)now.uordblks);
    free(large);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    now = mallinfo2();
    adds_up(now);
    CHECK(now.uordblks <= before.uordblks + BYTES && now.hblks == before.hblks);
    /* More than an int can say. */
    void *vast = malloc(hidden(5ul << 30));
    if (vast != NULL) {
        CHECK(mallinfo2().hblkhd - before.hblkhd == 5ul << 30);
        CHECK(mallinfo().hblkhd == INT_MAX);
    }
    return 0;
}
