/* When the program frees a block, only the page that it locked stays resident. After munlock, Neap
   purges that page without a call by the program. Argument 1: which page of the block. */
#include "purge.h"
#include <sys/mman.h>

enum { LARGE = 128 * MIB };

static char *page;

static int is_resident(void) {
    unsigned char answer;
    CHECK(mincore(page, 1, &answer) == 0);
    return answer & 1;
}

static int is_gone(void) {
    return !is_resident();
}

static size_t most;

static int rest_is_gone(void) {
    return resident() <= most;
}

int main(int argc, char **argv) {
    CHECK(argc == 2 && served_by_neap("malloc"));
    char *block = malloc(LARGE);
    CHECK(block);
    most = resident() + ALLOWANCE;
    memset(block, 0x5a, LARGE);
    page = block + (!strcmp(argv[1], "first") ? 0 : LARGE / 2 + 5 * sysconf(_SC_PAGESIZE));
    if (mlock(page, 1) != 0) skip("mlock");
    free(block);
    CHECK(until(rest_is_gone) && is_resident());
    CHECK(munlock(page, 1) == 0);
    CHECK(until(is_gone));
    return 0;
}
