/* With many operations between, none of which hands the block out again. */
#include "misuse.h"

int main(void) {
    void *block = malloc(64);
    free(block);
    for (int i = 0; i < 10000; i++) free(malloc(200 + i % 5000));
    free(block); /* HERE */
    surface();
}
