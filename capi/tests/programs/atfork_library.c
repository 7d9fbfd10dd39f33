/* A library whose constructor comes first and whose fork handlers allocate, enough to need every
   lock. */
#include <pthread.h>
#include <stdlib.h>

static void *blocks[5000];

static void before(void) {
    for (int i = 0; i < 5000; i++) blocks[i] = malloc(700);
}

static void after(void) {
    for (int i = 0; i < 5000; i++) free(blocks[i]);
}

__attribute__((constructor)) static void start(void) { pthread_atfork(before, after, after); }
