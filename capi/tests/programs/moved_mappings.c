/* Blocks that grow by moving their pages cost mappings: few, and they come back. */
#include "check.h"

#define BLOCKS 4400

static int mappings(void) {
    FILE *maps = fopen("/proc/self/maps", "re");
    int lines = 0, letter;
    CHECK(maps != NULL);
    while ((letter = getc(maps)) != EOF) lines += letter == '\n';
    fclose(maps);
    return lines;
}

int main(void) {
    static char *blocks[BLOCKS], *between[BLOCKS];
    CHECK(served_by_neap("realloc"));
    int before = mappings();
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
    fprintf(stdout, "mappings: %d, %d, %d\n", before, grown, after);
    /* Without moves this test would show nothing; without a bound, two mappings a block. */
    CHECK(grown > before + 1000 && grown < before + 2 * 4096 + 100);
    CHECK(after < before + 100);
    return 0;
}
