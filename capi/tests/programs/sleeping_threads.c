/* Threads each use blocks of many sizes a few times and then sleep. The memory that they freed goes
   back to the kernel, and no thread keeps a block of every size. */
#include "resident.h"
#include <pthread.h>

enum { THREADS = 200, SIZES = 64, STEP = 500, MOST = 50 << 10 };

static pthread_barrier_t turn;

static void *use_and_sleep(void *unused) {
    char *blocks[SIZES];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SIZES; i++) {
            size_t bytes = 16 + (size_t)i * STEP;
            CHECK((blocks[i] = malloc(bytes)));
            memset(blocks[i], 1, bytes);
        }
        for (int i = 0; i < SIZES; i++) free(blocks[i]);
    }
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}

int main(void) {
    pthread_t threads[THREADS];
    CHECK(served_by_neap("malloc"));
    CHECK(pthread_barrier_init(&turn, NULL, THREADS + 1) == 0);
    size_t before = resident(), after = 0;
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, use_and_sleep, NULL) == 0);
    pthread_barrier_wait(&turn);
    /* Decay takes two to three seconds; a loaded machine may take longer. */
    for (int tenths = 0; tenths < 300; tenths++) {
        usleep(100000);
        after = resident();
        if (after <= before + (size_t)THREADS * MOST) break;
    }
    pthread_barrier_wait(&turn);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    if (after > before + (size_t)THREADS * MOST) {
        fprintf(stderr, "%d sleeping threads keep %zu bytes each\n", THREADS, (after - before) / THREADS);
        return 1;
    }
    return 0;
}
