/* Sizes that no machine has are refused with ENOMEM; large zeroed blocks cost nothing untouched. */
#include "check.h"
#include <malloc.h>

static void refused(size_t size) {
    void *block = malloc(16);
    errno = 0, CHECK(!malloc(size) && errno == ENOMEM);
    errno = 0, CHECK(!calloc(1, size) && errno == ENOMEM);
    errno = 0, CHECK(!realloc(block, size) && errno == ENOMEM);
    errno = 0, CHECK(!memalign(4096, size) && errno == ENOMEM);
    void *result = block;
    CHECK(posix_memalign(&result, 64, size) == ENOMEM);
    free(block);
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    refused(hidden(SIZE_MAX));
    refused(hidden(SIZE_MAX) - 4095);
    refused(hidden(PTRDIFF_MAX));
    refused(hidden((size_t)PTRDIFF_MAX + 1));
    refused(hidden(1) << 47);
    refused(hidden(1) << 48);
    errno = 0, CHECK(!calloc(hidden(1) << 33, hidden(1) << 33) && errno == ENOMEM);
    free(malloc(100));
    return 0;
}
