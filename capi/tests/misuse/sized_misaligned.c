/* A block of malloc, given back as one of aligned_alloc. */
#include "misuse.h"

void free_aligned_sized(void *block, size_t align, size_t size);

int main(void) {
    char *block = small_block();
    while ((uintptr_t)block % 4096 == 0) block = small_block();
    free_aligned_sized(block, 4096, 64); /* HERE */
    surface();
}
