/* With many operations between, none of which hands the block out again. */
#include "misuse.h"

int main(void) {
    void *block = small_block();
    free(block);
    for (int i = 0; i < 10000; i++) free(malloc(200 + i % 5000));
    free(block); /* HERE */
    surface();
}
