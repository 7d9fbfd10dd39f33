/* Twice in a row. */
#include "misuse.h"

int main(void) {
    void *block = small_block();
    free(block);
    free(block); /* HERE */
    surface();
}
