/* The middle of a block, aligned to nothing. */
#include "misuse.h"

int main(void) {
    char *block = small_block();
    free(block + 1); /* HERE */
    surface();
}
