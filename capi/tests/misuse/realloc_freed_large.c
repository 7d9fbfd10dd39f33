/* A large block that is free already. */
#include "misuse.h"

int main(void) {
    char *block = malloc(1 << 20);
    free(block);
    block = realloc(block, 2 << 20); /* HERE */
    surface();
}
