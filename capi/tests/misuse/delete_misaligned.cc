// An object deleted as one with a larger alignment.
#include "misuse.h"
#include <new>

int main() {
    char *block = small_block();
    while ((uintptr_t)block % 4096 == 0) block = small_block();
    operator delete(block, 64, std::align_val_t{4096}); /* HERE */
    surface();
}
