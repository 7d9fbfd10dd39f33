/* Whatever the size classes: blocks hold what they must, are aligned as promised, and do not
 * overlap. Arguments: a seed, and what requests of up to 8 bytes are aligned to. */
#include "check.h"
#include "../../include/neap.h"
#include <malloc.h>
#include <pthread.h>

enum { LIVE = 3000, STEPS = 120000, LARGEST = 40000 };

struct block {
    unsigned char *address;
    size_t size, align;
    unsigned char seed;
};

static size_t least_align;

static uint64_t next(uint64_t *state) {
    *state ^= *state >> 12, *state ^= *state << 25, *state ^= *state >> 27;
    return *state * UINT64_C(0x2545f4914f6cdd1d);
}

static size_t random_size(uint64_t *state) {
    size_t bits = 3 + next(state) % 14;
    return next(state) % (bits == 16 ? LARGEST : (size_t)1 << bits);
}

/* The whole usable block is the program's. */
static void fill(struct block *block) {
    size_t usable = malloc_usable_size(block->address);
    CHECK(block->address && usable >= block->size);
    CHECK(multiple_of(block->address, block->align));
    memset(block->address, block->seed, usable);
}

static void check(const struct block *block, size_t bytes) {
    for (size_t at = 0; at < bytes; at++) CHECK(block->address[at] == block->seed);
}

static size_t promised(size_t size) { return size > 8 ? 16 : least_align; }

static void allocate(struct block *block, uint64_t *state) {
    size_t size = random_size(state), align = promised(size);
    switch (next(state) % 4) {
    case 0:
        block->address = calloc(1, size);
        for (size_t at = 0; at < size; at++) CHECK(block->address[at] == 0);
        break;
    case 1:
        align = (size_t)8 << next(state) % 10;
        CHECK(posix_memalign((void **)&block->address, align, size) == 0);
        break;
    default:
        block->address = malloc(size);
    }
    block->size = size, block->align = align, block->seed = next(state);
    fill(block);
}

static void resize(struct block *block, uint64_t *state) {
    size_t size = 1 + random_size(state), kept = size < block->size ? size : block->size;
    block->address = realloc(block->address, size);
    check(block, kept);
    block->size = size, block->align = promised(size);
    fill(block);
}

static void release(struct block *block, uint64_t *state) {
    check(block, malloc_usable_size(block->address));
    if (block->align == promised(block->size) && next(state) % 2)
        free_sized(block->address, block->size);
    else if (next(state) % 2)
        free_aligned_sized(block->address, block->align, block->size);
    else
        free(block->address);
    block->address = NULL;
}

static void *churn(void *seed) {
    static _Thread_local struct block blocks[LIVE];
    uint64_t state = (uintptr_t)seed;
    for (int step = 0; step < STEPS; step++) {
        struct block *block = &blocks[next(&state) % LIVE];
        if (!block->address)
            allocate(block, &state);
        else if (next(&state) % 4 == 0)
            resize(block, &state);
        else
            release(block, &state);
    }
    for (int index = 0; index < LIVE; index++)
        if (blocks[index].address) release(&blocks[index], &state);
    malloc_trim(0);
    return NULL;
}

/* The first call of a thread may be any. */
static void *realloc_first(void *block) { return realloc(block, 333); }

static void first_calls(void) {
    pthread_t thread;
    void *block = malloc(100);
    memset(block, 7, 100);
    CHECK(pthread_create(&thread, NULL, realloc_first, block) == 0);
    CHECK(pthread_join(thread, &block) == 0);
    CHECK(malloc_usable_size(block) >= 333 && ((char *)block)[99] == 7);
    free_sized(block, 333);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    uintptr_t seed = strtoul(arguments[1], NULL, 10);
    least_align = strtoul(arguments[2], NULL, 10);
    first_calls();
    pthread_t threads[2];
    for (uintptr_t number = 0; number < 2; number++)
        CHECK(pthread_create(&threads[number], NULL, churn, (void *)(seed * 2 + number + 1)) == 0);
    for (int number = 0; number < 2; number++) CHECK(pthread_join(threads[number], NULL) == 0);
    /* Still there when the statistics are written. */
    static void *volatile kept[5];
    static const size_t sizes[5] = {8, 100, 1000, 8000, 30000};
    for (int number = 0; number < 5; number++) kept[number] = malloc(sizes[number]);
    return 0;
}
