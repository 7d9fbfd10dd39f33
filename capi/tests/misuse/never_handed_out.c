/* A later block of the slab, in this thread's magazine. */
#include "misuse.h"

int main(void) {
    char *block = small_block();
    free(block + 3 * 64); /* HERE */
    surface();
}
