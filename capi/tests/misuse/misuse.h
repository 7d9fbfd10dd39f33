/* One misuse a program. It must end at the line marked HERE at the latest in check
   mode, and at surface() at the latest by default: that empties the magazines. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C"
#endif
void free_sized(void *block, size_t size);

/* A block of 64 bytes between two that stay: its slab cannot be given up. */
static inline char *small_block(void) {
    char *blocks[3];
    for (int i = 0; i < 3; i++) {
        blocks[i] = (char *)malloc(64);
        if (!blocks[i]) _exit(3);
    }
    return blocks[1];
}

/* Reports that the misuse was not seen at once, and makes the library look at every block it
   holds. */
static inline void surface(void) {
    if (write(1, "returned\n", 9) != 9) _exit(2);
    malloc_trim(0);
}
