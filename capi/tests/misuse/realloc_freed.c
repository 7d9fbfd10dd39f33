/* A block that is free already. */
#include "misuse.h"

int main(void) {
    void *block = malloc(64);
    free(block);
    malloc_trim(0);
    block = realloc(block, 200); /* HERE */
    surface();
}
