/* Twenty buffers of 5 to 25 MiB; one at random is replaced by one of another size, and filled. What
   was freed a moment ago serves again: the pages that are faulted in are those of the first use,
   and few more. */
#include "purge.h"
#include <sys/resource.h>

enum { BUFFERS = 20, ROUNDS = 600 };

static unsigned state = 42;

static size_t below(size_t n) {
    state = state * 1664525u + 1013904223u;
    return (size_t)((unsigned long long)state * n >> 32);
}

static long faults(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage.ru_minflt;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    char *buffers[BUFFERS] = {0};
    long before = faults(), touched = 0;
    for (int round = 0; round < ROUNDS; round++) {
        size_t which = below(BUFFERS), size = 5 * MIB + below(20 * MIB);
        free(buffers[which]);
        CHECK((buffers[which] = malloc(size)));
        for (size_t at = 0; at < size; at += 4096, touched++) buffers[which][at] = 1;
    }
    CHECK(one_lives());
    long faulted = faults() - before;
    printf("%ld of %ld pages were faulted in\n", faulted, touched);
    CHECK(faulted < touched / 6);
    return 0;
}
