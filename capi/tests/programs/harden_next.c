/* A thread that only frees fills its magazines from empty. Here it frees blocks of two sizes in
   turn. Prints the number of the block that it allocates next, which must differ from process to
   process. */
#include "check.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

enum { BLOCKS = 10000, BYTES = 200 };

static void *blocks[BLOCKS];

/* A pointer may have a tag in its upper byte. */
static int is_other(void *a, void *b) {
    return (uintptr_t)a << 8 != (uintptr_t)b << 8;
}

/* The number of the block that the next call returns; BLOCKS if it is none of them. */
static void *next(void *number) {
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    void *block = malloc(BYTES);
    int at = 0;
    while (at < BLOCKS && is_other(blocks[at], block)) at++;
    *(int *)number = at;
    return NULL;
}

int main(void) {
    int number = -1;
    pthread_t thread;
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(i % 2 ? 48 : BYTES)));
    CHECK(pthread_create(&thread, NULL, next, &number) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(number < BLOCKS);
    printf("%d\n", number);
    return 0;
}
