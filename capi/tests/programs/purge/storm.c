/* Threads with large stacks come and go in crowds, so that the C library's cache of stacks
   overflows and it frees what a thread had under the lock of this cache, while another thread frees
   much and purge threads, which have stacks too, come and go. */
#include "purge.h"
#include <stdatomic.h>

enum { CROWD = 24, ROUNDS = 60, STACK = 8 * MIB };
static atomic_int stop, seen;

/* Memory of the thread's own, so that the C library has to free it. */
static __thread char own[4096];

static void *visit(void *unused) {
    char stack[64 << 10];
    memset(stack, 1, sizeof stack);
    memset(own, 2, sizeof own);
    void *block = malloc(100);
    CHECK(block && stack[hidden(5)] == 1);
    free(block);
    return unused;
}

static void *free_much(void *unused) {
    while (!stop) {
        fill_and_empty();
        if (purge_threads() > 0) seen = 1;
        nap(15);
        if (purge_threads() > 0) seen = 1;
    }
    return unused;
}

static void crowd(pthread_attr_t *attributes) {
    pthread_t ids[CROWD];
    for (int i = 0; i < CROWD; i++) CHECK(pthread_create(&ids[i], attributes, visit, NULL) == 0);
    for (int i = 0; i < CROWD; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

int main(void) {
    pthread_attr_t attributes;
    pthread_t freer;
    CHECK(served_by_neap("malloc"));
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0);
    alarm(240); /* a deadlock ends as SIGALRM */
    CHECK(pthread_create(&freer, NULL, free_much, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) crowd(&attributes);
    stop = 1;
    CHECK(pthread_join(freer, NULL) == 0);
    CHECK(seen); /* else nothing was tested */
    return 0;
}
