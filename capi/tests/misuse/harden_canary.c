/* A byte past the end of a block that fills its place: it changes the word behind the block. */
#include "misuse.h"

int main(void) {
    char *block = malloc(56);
    *(volatile char *)(block + 56) ^= 1;
    free(block); /* HERE */
    surface();
}
