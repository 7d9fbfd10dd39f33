/* An address below any arena. */
#include "misuse.h"

int main(void) {
    free((void *)(uintptr_t)0x10); /* HERE */
    surface();
}
