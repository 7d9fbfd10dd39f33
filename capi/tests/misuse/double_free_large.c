/* A large block: its span has gone back to the page heap. */
#include "misuse.h"

int main(void) {
    void *block = malloc(1 << 20);
    free(block);
    free(block); /* HERE */
    surface();
}
