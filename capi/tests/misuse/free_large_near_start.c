/* The first slice of a large block, but not its start. */
#include "misuse.h"

int main(void) {
    char *block = malloc(1 << 20);
    free(block + 4096); /* HERE */
    surface();
}
