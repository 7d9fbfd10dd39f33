/* A byte past the end of a block, and then a size for which the block must move. */
#include "misuse.h"

int main(void) {
    char *block = malloc(50);
    *(volatile char *)(block + 50) = 1;
    block = realloc(block, 500); /* HERE */
    surface();
}
