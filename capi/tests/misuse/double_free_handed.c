/* Twice by a thread that another one handed the block to, as its first two frees: between them lies
   a block of a cache line of its own. The next malloc tells. */
#include "misuse.h"
#include <pthread.h>

static void *freed_twice(void *block) {
    free(block);
    free(block); /* HERE */
    return malloc(32);
}

int main(void) {
    pthread_t thread;
    void *blocks[2] = {malloc(32), malloc(32)};
    if (!blocks[0] || !blocks[1]) _exit(3);
    pthread_create(&thread, NULL, freed_twice, blocks[0]);
    pthread_join(thread, NULL);
    _exit(4);
}
