/* Once by each of two threads. */
#include "misuse.h"
#include <pthread.h>

static void *block;
static pthread_barrier_t both;

static void *second(void *unused) {
    pthread_barrier_wait(&both);
    free(block); /* HERE */
    return unused;
}

int main(void) {
    pthread_t thread;
    pthread_barrier_init(&both, NULL, 2);
    block = small_block();
    pthread_create(&thread, NULL, second, NULL);
    free(block);
    pthread_barrier_wait(&both);
    pthread_join(thread, NULL);
    surface();
}
