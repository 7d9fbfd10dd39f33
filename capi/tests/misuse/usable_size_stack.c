/* A local variable has no usable size. */
#include "misuse.h"

int main(void) {
    long local[8] = {0};
    size_t usable = malloc_usable_size(local); /* HERE */
    surface();
    return usable == 0;
}
