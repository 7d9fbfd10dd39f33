/* A trim issues one membarrier a batch of threads, not one a thread. */
#include "own_calls.h"
#include <malloc.h>
#include <pthread.h>

enum { THREADS = 320, BATCH = 32, BLOCKS = 12, STACK = 128 << 10 };

static pthread_barrier_t filled, trimmed;
static int barriers;

static long seen(long number, const long *arguments) {
    if (number == SYS_membarrier) barriers++;
    return passed(number, arguments);
}

static void *hold(void *unused) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(100)));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&trimmed);
    return unused;
}

int main(void) {
    prepare_calls();
    CHECK(served_by_neap("malloc"));
    pthread_t ids[THREADS];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0);
    pthread_barrier_init(&filled, NULL, THREADS + 1);
    pthread_barrier_init(&trimmed, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&ids[i], &attributes, hold, NULL) == 0);
    pthread_barrier_wait(&filled);
    struct mallinfo2 before = mallinfo2();
    watch_calls(1);
    malloc_trim(0);
    watch_calls(0);
    struct mallinfo2 after = mallinfo2();
    pthread_barrier_wait(&trimmed);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    /* One block a class and thread stays. */
    CHECK(before.fsmblks >= THREADS * 100 * BLOCKS / 2 && after.fsmblks < before.fsmblks / 2);
    /* The first call may be refused until the process is registered; a round of the purge thread
       may come between. */
    CHECK(barriers >= 1 && barriers <= 2 * (THREADS / BATCH) + 4);
    return 0;
}
