/* A block far up in the slab, which no magazine holds. malloc gives it out, and must not give it
   out again when the magazine reaches it. */
#include "misuse.h"

int main(void) {
    static void *blocks[400];
    char *unused = small_block() + 200 * 64;
    int seen = 0;
    free(unused); /* HERE */
    for (int i = 0; i < 400; i++) blocks[i] = malloc(64);
    for (int i = 0; i < 400; i++) seen += blocks[i] == (void *)unused;
    if (seen > 1 && write(1, "given out twice\n", 16) != 16) _exit(2);
    return 0;
}
