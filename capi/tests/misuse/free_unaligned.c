/* The middle of a block, aligned to nothing. */
#include "misuse.h"

int main(void) {
    char *block = malloc(64);
    free(block + 1); /* HERE */
    surface();
}
