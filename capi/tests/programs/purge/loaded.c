/* A library that fills memory when it is loaded and frees it when it is closed, under the loader's
   lock. */
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 24 << 10, BYTES = 1024 };
static char *blocks[BLOCKS];

__attribute__((constructor)) static void arrive(void) {
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(BYTES);
        memset(blocks[i], 'a', BYTES);
    }
    for (int i = 0; i < BLOCKS; i += 2) free(blocks[i]), blocks[i] = NULL;
}

__attribute__((destructor)) static void leave(void) {
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}
