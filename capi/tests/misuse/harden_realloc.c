/* A byte past the end of a block, and then another size for it. */
#include "misuse.h"

int main(void) {
    char *block = malloc(50);
    *(volatile char *)(block + 50) = 1;
    block = realloc(block, 52); /* HERE */
    surface();
}
