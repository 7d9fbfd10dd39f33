/* Twice in a row: seen by the second call, in every mode. */
#include "misuse.h"

int main(void) {
    void *block = small_block();
    free(block);
    free(block); /* HERE */
    puts("not seen at once");
    return 0;
}
