/* A write into the free block that follows a block. */
#include "misuse.h"

enum { SLICE = 65536, STEP = 2048 };

int main(void) {
    char *block;
    do
        block = malloc(2000);
    while ((uintptr_t)block % SLICE + 2 * STEP > SLICE);
    block[STEP + 4] = 1;
    free(block); /* HERE */
    surface();
}
