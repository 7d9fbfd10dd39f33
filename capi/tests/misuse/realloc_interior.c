/* The middle of a block. */
#include "misuse.h"

int main(void) {
    char *block = small_block();
    block = realloc(block + 16, 200); /* HERE */
    surface();
}
