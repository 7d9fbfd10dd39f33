/* Over NEAP_LIMIT every way to allocate gives NULL and ENOMEM, and when something is freed life
   goes on. Argument 1: the limit in bytes. */
#include "../purge/purge.h"
#include <malloc.h>

static size_t limit, at_start;

static void *by_malloc(size_t bytes) {
    return malloc(bytes);
}

static void *by_calloc(size_t bytes) {
    return calloc(bytes, 1);
}

static void *by_realloc(size_t bytes) {
    void *block = malloc(16), *larger = block ? realloc(block, bytes) : NULL;
    if (!larger) free(block); /* it is still there */
    return larger;
}

static void *by_memalign(size_t bytes) {
    return memalign(4096, bytes);
}

static void *by_posix_memalign(size_t bytes) {
    void *block = NULL;
    int error = posix_memalign(&block, 64, bytes);
    CHECK(error == 0 || error == ENOMEM);
    if (error) errno = error; /* the result is the code */
    return error ? NULL : block;
}

static void *(*const ways[])(size_t) = {by_malloc, by_calloc, by_realloc, by_memalign, by_posix_memalign};
static const size_t sizes[] = {64, 1000, 5000, 40000, 300000, 3 << 20};

/* Takes and writes until there is no more; the bytes that were had. */
static size_t take_all(void *(*way)(size_t), size_t size, struct block **list) {
    size_t bytes = 0;
    struct block *block;
    errno = 0;
    while ((block = way(size))) {
        memset(block, 0x5a, size);
        block->next = *list, *list = block;
        bytes += size;
        CHECK(bytes <= limit);
    }
    CHECK(errno == ENOMEM);
    return bytes;
}

/* What can be had at least. A block aligned to a page holds half of what it takes, or less. */
static size_t least(void *(*way)(size_t), size_t size) {
    size_t taken = way == by_memalign && size < 4096 ? 4096 : size;
    return limit / 5 * 2 / taken * size;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    limit = strtoul(arguments[1], NULL, 10), at_start = resident();
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            struct block *list = NULL;
            size_t bytes = take_all(ways[way], sizes[i], &list);
            CHECK(bytes >= least(ways[way], sizes[i])); /* what was freed can be had again */
            CHECK(resident() <= at_start + limit + ALLOWANCE);
            empty(list);
        }
    void *block = malloc(hidden(1000));
    CHECK(block);
    errno = 0, CHECK(!malloc(2 * limit) && errno == ENOMEM);
    errno = 0, CHECK(!calloc(2, limit) && errno == ENOMEM);
    errno = 0, CHECK(!realloc(block, 2 * limit) && errno == ENOMEM);
    errno = 0, CHECK(!aligned_alloc(4096, 2 * limit) && errno == ENOMEM);
    free(block);
    return 0;
}
