/* A large block that cannot grow in place has its pages moved: at no time are there two copies, as
   the growth of the most memory ever resident shows. */
#include "check.h"
#include <sys/resource.h>

enum { BYTES = 64 << 20 };

static long most_resident_kib(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_maxrss;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    char *block = malloc(BYTES), *wall = malloc(BYTES);
    CHECK(block && wall);
    memset(block, 1, BYTES);
    /* Under an emulator, its own memory counts as well. */
    long before = most_resident_kib();
    block = realloc(block, 3ul * BYTES);
    CHECK(block && block[0] == 1 && block[BYTES - 1] == 1);
    CHECK(most_resident_kib() - before < BYTES / 2 / 1024);
    free(block);
    free(wall);
    return 0;
}
