/* A block far up in the slab, just before the magazine is flushed: seen by that flush, before
   malloc hands it out. */
#include "misuse.h"

int main(void) {
    enum { COUNT = 20000 };
    static void *blocks[COUNT];
    int next = 0;
    for (int i = 0; i < COUNT; i++) blocks[i] = malloc(64);
    char *unused = (char *)((uintptr_t)blocks[COUNT - 1] | 0xffff) - 63;
    /* The magazine has its largest capacity, 2,048 blocks, and was flushed just now. */
    while (next < 8192) free(blocks[next++]);
    for (size_t held = 0, before = 0; next < 12000 && held >= before; free(blocks[next++])) {
        before = held;
        held = mallinfo2().fsmblks;
    }
    for (int i = 0; i < 1015; i++) free(blocks[next++]);
    free(unused); /* HERE */
    for (int i = 0; i < 16; i++) free(blocks[next++]);
    for (int i = 0; i < 100; i++) blocks[i] = malloc(64);
    if (write(1, "handed out\n", 11) != 11) _exit(2);
    return 0;
}
