/* A block that is free already. */
#include "misuse.h"

int main(void) {
    void *block = small_block();
    free(block);
    size_t usable = malloc_usable_size(block); /* HERE */
    surface();
    return usable == 0;
}
