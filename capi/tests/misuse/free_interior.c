/* The middle of a block, aligned as a block is. */
#include "misuse.h"

int main(void) {
    char *block = small_block();
    free(block + 16); /* HERE */
    surface();
}
