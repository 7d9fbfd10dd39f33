/* A library that is initialised before the library under test. Its constructor registers fork
   handlers that take a lock; with ALLOCATES, it allocates two blocks first, and keeps one. */
#include <pthread.h>
#include <stdlib.h>

pthread_mutex_t early_lock = PTHREAD_MUTEX_INITIALIZER;
void *early_block, *kept_block;

static void lock(void) { pthread_mutex_lock(&early_lock); }

static void unlock(void) { pthread_mutex_unlock(&early_lock); }

__attribute__((constructor)) static void start(void) {
#ifdef ALLOCATES
    early_block = malloc(100);
    kept_block = malloc(100);
#endif
    pthread_atfork(lock, unlock, unlock);
}
