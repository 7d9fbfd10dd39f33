/* The middle of a block. */
#include "misuse.h"

int main(void) {
    char *block = malloc(64);
    block = realloc(block + 16, 200); /* HERE */
    surface();
}
