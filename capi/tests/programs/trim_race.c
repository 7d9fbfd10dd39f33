/* malloc_trim empties the magazines of threads that are using them: no block is lost or given
   twice. Each block carries its owner's mark, read again before it is freed or handed on. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum { THREADS = 8, SLOTS = 256, SHARED = 64 };
static atomic_int stop;
static _Atomic(size_t *) shared[SHARED];

static size_t *fresh(size_t bytes) {
    size_t *block = malloc(bytes);
    CHECK(block);
    size_t words = bytes / sizeof *block;
    block[0] = words;
    for (size_t i = 1; i < words; i++) block[i] = (size_t)block ^ i;
    return block;
}

static void give_back(size_t *block) {
    if (!block) return;
    CHECK(block[0] >= 2 && block[0] <= 1024);
    for (size_t i = 1; i < block[0]; i++) CHECK(block[i] == ((size_t)block ^ i));
    memset(block, 0xee, block[0] * sizeof *block);
    free(block);
}

static void *hammer(void *seed) {
    size_t *slots[SLOTS] = {0};
    unsigned state = (unsigned)(uintptr_t)seed;
    for (unsigned turn = 1; !stop; turn++) {
        state = state * 1664525 + 1013904223;
        size_t **slot = &slots[state >> 24];
        give_back(*slot);
        *slot = fresh(16 + (state >> 8 & (state & 64 ? 8176 - 1 : 511)));
        if (state >> 12 & 15) continue;
        *slot = atomic_exchange(&shared[state >> 18 & (SHARED - 1)], *slot);
    }
    for (int i = 0; i < SLOTS; i++) give_back(slots[i]);
    return NULL;
}

/* Sleeps mostly: its magazines are what the trimmer can take. */
static void *doze(void *unused) {
    const struct timespec nap = {0, 200000};
    while (!stop) {
        size_t *blocks[32];
        for (int i = 0; i < 32; i++) blocks[i] = fresh(64);
        for (int i = 0; i < 32; i++) give_back(blocks[i]);
        nanosleep(&nap, NULL);
    }
    return unused;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int arguments, char **argument) {
    double seconds = arguments > 1 ? atof(argument[1]) : 1.5, end = now() + seconds;
    pthread_t ids[2 * THREADS];
    long trims = 0;
    CHECK(served_by_neap("malloc_trim"));
    alarm(240 + (unsigned)seconds); /* a deadlock ends as SIGALRM */
    for (uintptr_t i = 0; i < 2 * THREADS; i++)
        CHECK(pthread_create(&ids[i], NULL, i < THREADS ? hammer : doze, (void *)(i + 1)) == 0);
    while (now() < end) malloc_trim(0), trims++;
    stop = 1;
    for (int i = 0; i < 2 * THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    for (int i = 0; i < SHARED; i++) give_back(shared[i]);
    if (arguments > 1) printf("%ld trims\n", trims);
    malloc_trim(0);
    CHECK(trims > 0 && mallinfo2().uordblks < 1 << 20);
    return 0;
}
