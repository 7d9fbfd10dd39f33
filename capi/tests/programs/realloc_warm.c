/* Buffers that grow beside others to where another buffer was: its resident pages are used, so a
   round takes few page faults. Before, each growth moved pages, and dropped those that were
   there. */
#include "check.h"
#include <sys/resource.h>

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

static void round_of_growth(void) {
    const size_t small = 600 << 10, large = 1100 << 10;
    char *buffer = malloc(small), *neighbour = malloc(small), *earlier = malloc(large);
    CHECK(buffer && neighbour && earlier);
    memset(buffer, 1, small);
    memset(neighbour, 2, small);
    memset(earlier, 4, large);
    free(earlier);
    buffer = realloc(buffer, large);
    CHECK(buffer && buffer[0] == 1 && buffer[small - 1] == 1);
    memset(buffer + small, 3, large - small);
    free(buffer);
    free(neighbour);
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    for (int i = 0; i < 20; i++) round_of_growth();
    long before = faults();
    for (int i = 0; i < 200; i++) round_of_growth();
    long taken = faults() - before;
    if (taken >= 200 * 20) fprintf(stderr, "%ld page faults in 200 rounds\n", taken);
    return taken >= 200 * 20;
}
