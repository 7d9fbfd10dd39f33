/* a, b, a: what a check of the last block alone misses. */
#include "misuse.h"

int main(void) {
    void *a = small_block(), *b = small_block();
    free(a);
    free(b);
    free(a); /* HERE */
    surface();
}
