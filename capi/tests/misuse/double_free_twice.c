/* Twice in a row. */
#include "misuse.h"

int main(void) {
    void *block = malloc(64);
    free(block);
    free(block); /* HERE */
    surface();
}
