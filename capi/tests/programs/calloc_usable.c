/* calloc zeroes all bytes that malloc_usable_size tells, as glibc's does, not just those asked
   for. */
#include "check.h"
#include <malloc.h>

static void dirty(size_t size) {
    enum { COUNT = 8 };
    void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = malloc(size)) != NULL);
        memset(blocks[i], 0xff, malloc_usable_size(blocks[i]));
    }
    for (int i = 0; i < COUNT; i++)
        free(blocks[i]);
}

static void all_usable_bytes_are_zero(size_t size) {
    dirty(size);
    unsigned char *block = calloc(1, hidden(size));
    CHECK(block != NULL);
    size_t usable = malloc_usable_size(block);
    CHECK(usable >= size);
    for (size_t at = 0; at < usable; at++)
        CHECK(block[at] == 0);
    free(block);
}

int main(void) {
    CHECK(served_by_neap("calloc"));
    for (size_t size = 0; size < 1300; size++)
        all_usable_bytes_are_zero(size);
    for (size_t size = 1300; size < 3000000; size = size * 9 / 8 + 1)
        all_usable_bytes_are_zero(size);
    return 0;
}
