/* The first blocks of two threads share no cache line, though other blocks of the slab are in use
   or were. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>

enum { LINE = 64, FIRST = 8 };

static size_t size;
static pthread_barrier_t both_have;

static void *first_blocks(void *found) {
    void **blocks = found;
    for (int i = 0; i < FIRST; i++) CHECK((blocks[i] = malloc(size)));
    /* What a thread that ends gives back the other may get. */
    pthread_barrier_wait(&both_have);
    return NULL;
}

static int share(void **one, void **other) {
    int shared = 0;
    for (int i = 0; i < FIRST; i++)
        for (int j = 0; j < FIRST; j++)
            shared += (uintptr_t)one[i] / LINE == (uintptr_t)other[j] / LINE;
    return shared;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    pthread_barrier_init(&both_have, NULL, 2);
    for (size = 8; size <= 32; size += 8) {
        void *blocks[2][FIRST], *kept[2 * FIRST];
        pthread_t threads[2];
        /* All but three blocks go back to the slab, so that a refill begins within a line. */
        for (int i = 0; i < 2 * FIRST; i++) CHECK((kept[i] = malloc(size)));
        for (int i = 3; i < 2 * FIRST; i++) free(kept[i]);
        malloc_trim(0);
        for (int i = 0; i < 2; i++)
            CHECK(pthread_create(&threads[i], NULL, first_blocks, blocks[i]) == 0);
        for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
        CHECK(share(blocks[0], blocks[1]) == 0);
    }
    return 0;
}
