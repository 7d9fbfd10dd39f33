/* A later slice of a large block. */
#include "misuse.h"

int main(void) {
    char *block = malloc(1 << 20);
    free(block + (128 << 10)); /* HERE */
    surface();
}
