/* The header after and before the system's declarations of the same names. */
#include <malloc.h>
#include <stdlib.h>
#include "../../include/neap.h"
#include "../../include/neap.h"

size_t uses_every_declaration(void);

size_t uses_every_declaration(void) {
    void *block = malloc(10);
    size_t usable = malloc_usable_size(block);
    free_sized(block, 10);
    free_aligned_sized(NULL, 64, 128);
    return usable + (size_t)malloc_trim(0) + (size_t)neap_version()[0];
}
