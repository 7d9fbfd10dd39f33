/* An address that no process can have. */
#include "misuse.h"

int main(void) {
    free((void *)(UINTPTR_MAX - 0xffff)); /* HERE */
    surface();
}
