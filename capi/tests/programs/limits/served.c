/* Under NEAP_LIMIT a program can allocate a freed block again. Its pages count once, even if the
   program locked them and the kernel does not take them back. A block that grows by moving its
   pages counts once. Argument 2: what is locked, or "moved". */
#include "../purge/purge.h"
#include "locking.h"
#include <malloc.h>
#include <sys/mman.h>

static size_t limit;

static char *touched(size_t bytes) {
    char *block = malloc(bytes);
    CHECK(block);
    memset(block, 0x5a, bytes);
    return block;
}

static void grows_by_moving(void) {
    size_t start = resident(), bytes = limit / 8 * 5, page = sysconf(_SC_PAGESIZE);
    char *block = touched(bytes), *wall = touched(MIB);
    /* The block must move past the wall, and past its earlier places. */
    for (int step = 0; step < 8; step++) {
        char *larger = realloc(block, bytes + MIB), *next = touched(MIB);
        CHECK(larger && larger[0] == 0x5a && larger[bytes - 1] == 0x5a);
        memset(larger + bytes, 0x5a, MIB);
        CHECK(resident() <= start + limit + ALLOWANCE);
        free(wall), wall = next, block = larger, bytes += MIB;
    }
    /* The limit counts the live blocks and nothing else. */
    errno = 0, CHECK(!malloc(limit - bytes + page) && errno == ENOMEM);
    errno = 0, CHECK(!realloc(block, limit + page) && errno == ENOMEM);
    CHECK(block[0] == 0x5a && block[bytes - 1] == 0x5a);
    free(block);
    free(touched(bytes));
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    limit = strtoul(arguments[1], NULL, 10);
    const char *way = arguments[2];
    if (!strcmp(way, "moved")) {
        grows_by_moving();
        return 0;
    }
    int locks = !strcmp(way, "all");
    if (locks && !may_lock(2 * limit)) skip("locking twice the limit (ulimit -l)");
    if (locks && mlockall(MCL_CURRENT | MCL_FUTURE) != 0) skip("mlockall");
    size_t bytes = limit / 8 * 5;
    for (int turn = 0; turn < 20; turn++) {
        char *block = touched(bytes);
        if (!strcmp(way, "page") && turn == 0 && mlock(block + bytes / 2, 1) != 0) skip("mlock");
        free(block);
        if (turn % 4 == 3 && strcmp(way, "all")) malloc_trim(0);
    }
    /* Free memory in two halves serves one request that is larger than a half. */
    char *first = touched(bytes / 2), *second = touched(bytes / 2);
    free(first), free(second);
    free(touched(bytes / 2 + MIB));
    return 0;
}
