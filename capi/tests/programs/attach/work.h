// Threads that allocate.
#pragma once
#include "page.h"

static void *blocks[4096];
static atomic_int done;

static void exchange(unsigned *seed, void *moved) {
    int place = rand_r(seed) % 4096;
    ((uintptr_t *)moved)[0] = (uintptr_t)moved;
    ((uintptr_t *)moved)[1] = place;
    uintptr_t *before = __atomic_exchange_n(&blocks[place], moved, __ATOMIC_ACQ_REL);
    if (before) {
        CHECK(before[0] == (uintptr_t)before && before[1] == (uintptr_t)place);
        before[0] = 0;
        free(before);
    }
}

// Allocates and frees, so that slow paths come by; checks that contents stay.
static void work(unsigned *seed, int rounds) {
    for (int round = 0; round < rounds; round++) {
        size_t size = 1 + rand_r(seed) % (rand_r(seed) % 20 == 0 ? 200000 : 2000);
        unsigned char *block = rand_r(seed) % 3 ? malloc(size) : calloc(1, size);
        CHECK(block && malloc_usable_size(block) >= size && (uintptr_t)block % 16 == 0);
        memset(block, (int)size & 255, size);
        size_t other = 1 + rand_r(seed) % 3000;
        unsigned char *moved = realloc(block, other);
        CHECK(moved);
        for (size_t i = 0; i < (size < other ? size : other); i += 61)
            CHECK(moved[i] == (size & 255));
        // Some are freed by another thread, later. Every one says until then where it lies: a block
        // that two have says the wrong thing.
        if (other < 16)
            free(moved);
        else
            exchange(seed, moved);
    }
}

static void *worker(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number + 1;
    while (!done)
        work(&seed, 200);
    return 0;
}
