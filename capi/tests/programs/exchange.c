/* Threads free each other's blocks of all sizes, and fork meanwhile. Each block is checked from
   malloc to free. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

enum { THREADS = 6, SLOTS = 2048, STEPS = 60000, SIZES = 9000 };

/* What is in a slot: its size, and a byte that fills the rest. */
struct block {
    unsigned size;
    unsigned char fill, rest[];
};

static _Atomic(struct block *) slots[SLOTS];

static void check_and_free(struct block *block) {
    if (!block) return;
    for (unsigned at = sizeof *block; at < block->size; at++)
        CHECK(((unsigned char *)block)[at] == block->fill);
    free(block);
}

static struct block *filled(struct block *block, size_t size, unsigned char fill) {
    CHECK(block);
    memset(block, fill, size);
    block->size = size;
    block->fill = fill;
    return block;
}

static struct block *made(unsigned random) {
    size_t size = (random >> 3) % 7 ? random % 200 : random % SIZES;
    size += sizeof(struct block);
    switch (random % 4) {
    case 0: {
        unsigned char *zeros = calloc(1, size);
        for (size_t at = 0; at < size; at++) CHECK(zeros[at] == 0);
        return filled((struct block *)zeros, size, random);
    }
    case 1: {
        struct block *block = filled(malloc(size), size, 7);
        block = realloc(block, 2 * size);
        CHECK(block && block->size == size && block->fill == 7);
        return filled(block, 2 * size, random);
    }
    default: return filled(malloc(size), size, random);
    }
}

static unsigned next(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static void in_a_child(unsigned state) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 300; i++)
            check_and_free(atomic_exchange(&slots[next(&state) % SLOTS], made(next(&state))));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *live(void *number) {
    unsigned state = (unsigned)(uintptr_t)number * 2654435761u;
    for (int step = 0; step < STEPS; step++) {
        struct block *block = made(next(&state));
        check_and_free(atomic_exchange(&slots[next(&state) % SLOTS], block));
        if (step % 20000 == 100 * (int)(uintptr_t)number) in_a_child(state);
    }
    return NULL;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    for (int generation = 0; generation < 2; generation++) {
        pthread_t ids[THREADS];
        for (uintptr_t i = 0; i < THREADS; i++)
            CHECK(pthread_create(&ids[i], NULL, live, (void *)(i + 1 + generation * THREADS)) == 0);
        for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    }
    for (int i = 0; i < SLOTS; i++) check_and_free(slots[i]);
    return 0;
}
