/* A free that the C library calls starts no thread, for it may come with the library's locks held:
   `tdestroy` frees its nodes itself. The program's own next free starts it. */
#include "purge.h"
#include <search.h>

enum { NODES = 200000 };

static char keys[NODES];

static int order(const void *one, const void *other) {
    return (one > other) - (one < other);
}

static void keep(void *key) {
    (void)key;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    void *root = NULL;
    for (int i = 0; i < NODES; i++) CHECK(tsearch(&keys[i], &root, order));
    CHECK(none_lives());
    tdestroy(root, keep);
    nap(50);
    CHECK(none_lives());
    free(malloc(100000));
    CHECK(until(one_lives));
    return 0;
}
