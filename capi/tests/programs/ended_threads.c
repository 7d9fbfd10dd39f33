/* Threads that all lived at once leave next to nothing resident. Argument: how many. Their stacks
   are ours, so that the C library keeps none. */
#include "resident.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>

enum { LIVE = 200, OPERATIONS = 4000, STACK = 128 << 10 };

static pthread_barrier_t all_live;

static void *work(void *unused) {
    void *blocks[LIVE] = {NULL};
    unsigned state = (unsigned)(uintptr_t)&state;
    for (int i = 0; i < OPERATIONS; i++) {
        state = state * 1664525 + 1013904223;
        void **block = &blocks[(state >> 8) % LIVE];
        free(*block);
        CHECK((*block = malloc(16 + (state >> 16) % 1009)));
    }
    pthread_barrier_wait(&all_live);
    for (int i = 0; i < LIVE; i++) free(blocks[i]);
    return unused;
}

static void threads(int count) {
    pthread_t *ids = calloc(count, sizeof *ids);
    size_t bytes = (size_t)count * STACK;
    char *stacks = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(ids && stacks != MAP_FAILED);
    pthread_barrier_init(&all_live, NULL, count);
    for (int i = 0; i < count; i++) {
        pthread_attr_t attributes;
        CHECK(pthread_attr_init(&attributes) == 0);
        CHECK(pthread_attr_setstack(&attributes, stacks + (size_t)i * STACK, STACK) == 0);
        CHECK(pthread_create(&ids[i], &attributes, work, NULL) == 0);
        pthread_attr_destroy(&attributes);
    }
    for (int i = 0; i < count; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    pthread_barrier_destroy(&all_live);
    munmap(stacks, bytes);
    free(ids);
}

int main(int arguments, char **argument) {
    int count = arguments > 1 ? atoi(argument[1]) : 1000;
    CHECK(served_by_neap("malloc"));
    threads(10);
    malloc_trim(0);
    size_t before = resident();
    threads(count);
    malloc_trim(0);
    size_t after = resident();
    if (arguments > 1) printf("%d threads: resident %zu -> %zu\n", count, before, after);
    CHECK(after < before + (1 << 20) + (size_t)count * 3000);
    return 0;
}
