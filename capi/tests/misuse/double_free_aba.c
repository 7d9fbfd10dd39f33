/* a, b, a: what a check of the last block alone misses. */
#include "misuse.h"

int main(void) {
    void *a = malloc(64), *b = malloc(64);
    free(a);
    free(b);
    free(a); /* HERE */
    surface();
}
