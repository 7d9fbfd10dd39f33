/* Past the last block of a slab of 48 bytes, where 16 are left over. */
#include "misuse.h"

int main(void) {
    char *block = malloc(48);
    char *slab = (char *)((uintptr_t)block & ~(uintptr_t)0xffff);
    free(slab + 1365 * 48); /* HERE */
    surface();
}
