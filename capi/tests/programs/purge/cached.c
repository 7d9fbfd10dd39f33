/* What is cached goes home from a program that only allocates, by the function that argument 1
   names, and no length that is cached. Run without the purge thread. */
#include "purge.h"

enum { KIB = 1024, CACHED = 64 * KIB, SPANS = 15 * MIB / CACHED };

static const char *way;

static int is_given_back(void) {
    char *block = strcmp(way, "calloc") ? malloc(600 * KIB) : calloc(600, KIB);
    CHECK(block);
    return resident() <= goal;
}

int main(int count, char **arguments) {
    static char *blocks[SPANS];
    CHECK(count == 2 && served_by_neap("malloc"));
    way = arguments[1];
    for (int i = 0; i < SPANS; i++) {
        CHECK((blocks[i] = malloc(CACHED)));
        memset(blocks[i], 1, CACHED);
    }
    for (int i = 0; i < SPANS; i++) free(blocks[i]);
    goal = resident() - 12 * MIB;
    CHECK(until(is_given_back));
    return 0;
}
