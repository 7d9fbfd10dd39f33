/* Both copies go back in one flush, and the first is the last block of its slab, which is given up
   because a lower one is empty as well. */
#include "misuse.h"

enum { BLOCKS = 65536, LOW = 20000, HIGH = 40000 };
static char *blocks[BLOCKS];

static int shares_slab(int one, int other) {
    return (uintptr_t)blocks[one] >> 16 == (uintptr_t)blocks[other] >> 16;
}

/* The next block of another slab, none beside the one before. */
static char *next_other(void) {
    static int at;
    do at = (at + 3001) % BLOCKS;
    while (shares_slab(at, LOW) || shares_slab(at, HIGH));
    return blocks[at];
}

int main(void) {
    for (int i = 0; i < BLOCKS; i++)
        if (!(blocks[i] = (char *)malloc(64))) _exit(3);
    for (int i = 0; i < BLOCKS; i++)
        if (i != LOW && i != HIGH && (shares_slab(i, LOW) || shares_slab(i, HIGH)))
            free(blocks[i]);
    for (int i = 0; i < 8192; i++) free(next_other());
    free(blocks[LOW]);
    free(next_other());
    free(blocks[HIGH]);
    free(next_other());
    free(blocks[HIGH]); /* HERE */
    free(next_other());
    surface();
}
