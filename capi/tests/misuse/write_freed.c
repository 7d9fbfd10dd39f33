/* A write to a freed block, and then more frees than quarantine holds. */
#include "misuse.h"

int main(void) {
    char *block = small_block();
    free(block);
    *(volatile char *)(block + 40) = 1; /* seen in quarantine only */
    for (int i = 0; i < 10000; i++) free(malloc(64));
    surface();
}
