/* C23's free_sized and free_aligned_sized with the sizes that were asked for. */
#include "check.h"
#include "../../include/neap.h"
#include <malloc.h>

static void every_size_asked_for_is_accepted(void) {
    for (size_t size = 0; size < 5 << 20; size += 1 + size / 61) {
        free_sized(malloc(size), size);
        free_sized(calloc(1, size), size);
        free_sized(realloc(malloc(size / 3 + 1), size + 1), size + 1);
    }
}

static void every_alignment_asked_for_is_accepted(void) {
    for (size_t align = 1; align <= 1 << 22; align *= 2)
        for (size_t size = 0; size < 1 << 20; size = size * 3 + 1)
            free_aligned_sized(aligned_alloc(align, size), align, size);
}

static void shrunk_in_place_counts_as_the_new_size(void) {
    for (size_t size = 1000; size < 1 << 20; size *= 3) {
        free_sized(realloc(malloc(size), size - size / 8), size - size / 8);
        free_sized(realloc(malloc(size), size / 2), size / 2);
        free_sized(realloc(malloc(size), 1), 1);
    }
}

int main(void) {
    CHECK(served_by_neap("free_sized") && served_by_neap("free_aligned_sized"));
    free_sized(NULL, 100);
    free_aligned_sized(NULL, 64, 100);
    errno = EDOM;
    every_size_asked_for_is_accepted();
    every_alignment_asked_for_is_accepted();
    shrunk_in_place_counts_as_the_new_size();
    CHECK(errno == EDOM);
    const char *version = neap_version();
    CHECK(version && strchr(version, '.'));
    return 0;
}
