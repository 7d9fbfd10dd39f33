/* The middle of a block, aligned as a block is. */
#include "misuse.h"

int main(void) {
    char *block = malloc(64);
    free(block + 16); /* HERE */
    surface();
}
