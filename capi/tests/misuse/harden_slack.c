/* A byte past the end of a block, between its bytes and the word behind them. */
#include "misuse.h"

int main(void) {
    char *block = malloc(50);
    *(volatile char *)(block + 50) = 1;
    free(block); /* HERE */
    surface();
}
