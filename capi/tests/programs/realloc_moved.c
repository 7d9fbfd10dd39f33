/* A large block that cannot grow in place has its pages moved: at no time are there two copies, as
   the most memory ever resident shows. */
#include "check.h"
#include <sys/resource.h>

enum { BYTES = 64 << 20 };

int main(void) {
    CHECK(served_by_neap("malloc"));
    char *block = malloc(BYTES), *wall = malloc(BYTES);
    CHECK(block && wall);
    memset(block, 1, BYTES);
    block = realloc(block, 3ul * BYTES);
    CHECK(block && block[0] == 1 && block[BYTES - 1] == 1);
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    CHECK(usage.ru_maxrss < (BYTES + BYTES / 2) / 1024);
    free(block);
    free(wall);
    return 0;
}
