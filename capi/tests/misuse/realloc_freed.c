/* A block that is free already. */
#include "misuse.h"

int main(void) {
    void *block = small_block();
    free(block);
    malloc_trim(0);
    block = realloc(block, 200); /* HERE */
    surface();
}
