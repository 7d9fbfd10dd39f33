/* A block with two newer ones over it in the magazine. */
#include "misuse.h"

int main(void) {
    void *block = small_block(), *others[2] = {small_block(), small_block()};
    free(block);
    for (int i = 0; i < 2; i++) free(others[i]);
    block = realloc(block, 60); /* HERE */
    surface();
}
