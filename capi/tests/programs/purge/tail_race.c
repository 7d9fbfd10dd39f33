/* Blocks are resized in place, freed and handed on while rounds purge what is beyond their ends: no
   byte that a block holds changes. */
#include "purge.h"
#include <malloc.h>
#include <stdatomic.h>

enum { THREADS = 4, SLOTS = 6, PAGE = 4096, LEAST = 33 << 10, MOST = 200 << 10 };
static atomic_int stop;
static _Atomic(size_t *) shared[SLOTS];

/* Each page begins with a mark of the block and the page; the first word is the block's length. */
static void mark(size_t *block, size_t from, size_t bytes) {
    for (size_t at = from; at + 16 <= bytes; at += PAGE) ((size_t *)((char *)block + at))[1] = (size_t)block ^ at;
    ((size_t *)((char *)block + bytes))[-1] = bytes;
    block[0] = bytes;
}

static void check(const size_t *block, const size_t *home, size_t bytes) {
    for (size_t at = 0; at + 16 <= bytes; at += PAGE) CHECK(((const size_t *)((const char *)block + at))[1] == ((size_t)home ^ at));
}

static void check_whole(const size_t *block) {
    size_t bytes = block[0];
    CHECK(bytes >= LEAST && bytes <= MOST);
    CHECK(((const size_t *)((const char *)block + bytes))[-1] == bytes);
    check(block, block, bytes - sizeof bytes);
}

static size_t random_bytes(unsigned *state) {
    *state = *state * 1664525 + 1013904223;
    return (LEAST + (*state >> 8) % (MOST - LEAST)) & ~(size_t)15;
}

static size_t *fresh(unsigned *state) {
    size_t bytes = random_bytes(state);
    size_t *block = *state >> 30 ? malloc(bytes) : calloc(1, bytes);
    CHECK(block);
    if (!(*state >> 30))
        for (size_t at = 0; at < bytes / sizeof *block; at += 64) CHECK(block[at] == 0);
    mark(block, 0, bytes);
    return block;
}

/* To a size that takes as many slices, most of the time. */
static size_t *resized(size_t *block, unsigned *state) {
    size_t held = block[0], bytes = random_bytes(state), slice = (held - 1) & ~(size_t)65535;
    if (*state >> 30) bytes = slice + (bytes & 65535);
    if (bytes < LEAST || bytes > MOST) bytes = held;
    size_t *home = block;
    CHECK((block = realloc(block, bytes)));
    check(block, home, (held < bytes ? held : bytes) - sizeof bytes);
    mark(block, 0, bytes);
    return block;
}

static void *hammer(void *seed) {
    size_t *slots[SLOTS] = {0};
    unsigned state = (unsigned)(uintptr_t)seed;
    while (!stop) {
        state = state * 1664525 + 1013904223;
        size_t **slot = &slots[(state >> 16) % SLOTS];
        if (*slot) check_whole(*slot);
        if (!*slot) {
            *slot = fresh(&state);
        } else if (state >> 29 == 0) {
            free(*slot);
            *slot = NULL;
        } else if (state >> 29 == 1) {
            *slot = atomic_exchange(&shared[(state >> 16) % SLOTS], *slot);
        } else {
            *slot = resized(*slot, &state);
        }
    }
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
    return NULL;
}

int main(int count, char **arguments) {
    long milliseconds = count > 1 && *arguments[1] ? atol(arguments[1]) : 2000, trims = 0;
    pthread_t ids[THREADS];
    struct timespec start, now;
    alarm(240 + (unsigned)(milliseconds / 1000)); /* a deadlock ends as SIGALRM */
    with_purge_thread();
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, hammer, (void *)(i + 1)) == 0);
    CHECK(clock_gettime(CLOCK_MONOTONIC, &start) == 0);
    do {
        malloc_trim(0);
        trims++;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    } while ((now.tv_sec - start.tv_sec) * 1000 + (now.tv_nsec - start.tv_nsec) / 1000000 < milliseconds);
    stop = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    for (int i = 0; i < SLOTS; i++) free(shared[i]);
    CHECK(trims > 0);
    return 0;
}
