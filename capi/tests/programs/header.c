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
    neap_stack_t stack = {0, 0, 0};
    if (neap_stack_report_overflows() && neap_stack_alloc(65536, &stack) == 0) {
        neap_stack_set_owner(&stack, "nobody");
        usable += neap_stack_trim(&stack, stack.top);
        neap_stack_free(&stack);
    }
    return usable + (size_t)malloc_trim(0) + (size_t)neap_version()[0];
}
