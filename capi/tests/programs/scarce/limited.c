/* A program that limits its address space after its first malloc is limited about as under the C
   library's own malloc: of 200 MiB it gets 4 to 6 blocks of 30 MiB, then small ones, then NULL and
   ENOMEM. */
#include "../check.h"
#include <sys/resource.h>

#define MIB (1ul << 20)

int main(void) {
    CHECK(served_by_neap("malloc"));
    free(malloc(hidden(100)));
    struct rlimit limit = {200 * MIB, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    size_t large = 0, small = 0;
    while (large < 100 && malloc(hidden(30 * MIB)) != NULL)
        large++;
    CHECK(large >= 4 && large <= 6);
    CHECK(errno == ENOMEM);
    errno = 0;
    while (small < 200 * MIB / 144 && malloc(hidden(144)) != NULL)
        small++;
    CHECK(small > 0 && small < (200 - 30 * large) * MIB / 144);
    CHECK(errno == ENOMEM);
    return 0;
}
