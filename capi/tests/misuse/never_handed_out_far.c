/* A block far up in the slab, which no magazine holds. */
#include "misuse.h"

int main(void) {
    char *block = small_block();
    free(block + 700 * 64); /* HERE */
    surface();
}
