/* Blocks that grow beside others: they are moved seldom, and cost no mappings. */
#include "check.h"

#define BLOCKS 4400
#define STEPS 1000

static int mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    int lines = 0, letter;
    CHECK(maps != NULL);
    while ((letter = getc(maps)) != EOF) lines += letter == '\n';
    fclose(maps);
    return lines;
}

/* How often a block moves that grows by 64 KiB a step, with another block allocated after each. */
static int moves(void) {
    static char *between[STEPS];
    size_t bytes = 256 << 10;
    char *block = malloc(hidden(bytes));
    int moved = 0;
    CHECK(block != NULL);
    block[0] = 1;
    for (int i = 0; i < STEPS; i++) {
        bytes += 64 << 10;
        char *grown = realloc(block, hidden(bytes));
        CHECK(grown != NULL && grown[0] == 1);
        moved += grown != block;
        block = grown;
        CHECK((between[i] = malloc(hidden(300 << 10))) != NULL);
    }
    for (int i = 0; i < STEPS; i++) free(between[i]);
    free(block);
    return moved;
}

int main(void) {
    static char *blocks[BLOCKS], *between[BLOCKS];
    CHECK(served_by_neap("realloc"));
    int moved = moves(), before = mappings();
    for (int i = 0; i < BLOCKS; i++) {
        CHECK((blocks[i] = malloc(hidden(300 << 10))) != NULL);
        /* So that the block cannot grow where it is. */
        CHECK((between[i] = malloc(hidden(128 << 10))) != NULL);
        blocks[i][0] = (char)i;
        CHECK((blocks[i] = realloc(blocks[i], hidden(600 << 10))) != NULL);
        CHECK(blocks[i][0] == (char)i);
    }
    int grown = mappings();
    for (int i = 0; i < BLOCKS; i++) {
        CHECK(blocks[i][0] == (char)i);
        free(blocks[i]), free(between[i]);
    }
    int after = mappings();
    printf("mappings: %d, %d, %d; moves: %d\n", before, grown, after, moved);
    fflush(stdout);
    CHECK(grown < before + 100 && after < before + 100);
    CHECK(moved <= 8);
    return 0;
}
