/* A block that another thread's magazine holds, never handed out: seen once both copies are
   flushed. */
#include "misuse.h"
#include <pthread.h>

static char *block;
static pthread_barrier_t both;

static void *other(void *unused) {
    block = (char *)malloc(64);
    pthread_barrier_wait(&both);
    pause();
    return unused;
}

int main(void) {
    pthread_t thread;
    free(malloc(64));
    pthread_barrier_init(&both, NULL, 2);
    pthread_create(&thread, NULL, other, NULL);
    pthread_barrier_wait(&both);
    free(block + 3 * 64); /* HERE */
    surface();
}
