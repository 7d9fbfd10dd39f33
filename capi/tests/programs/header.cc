// The header before the system's declarations of the same names, in C++.
#include "../../include/neap.h"
#include <cstdlib>
#include <malloc.h>

std::size_t uses_every_declaration();

std::size_t uses_every_declaration() {
    void *block = std::malloc(10);
    std::size_t usable = malloc_usable_size(block);
    free_sized(block, 10);
    free_aligned_sized(nullptr, 64, 128);
    neap_stack_t stack = {nullptr, nullptr, 0};
    if (neap_stack_report_overflows() && neap_stack_alloc(65536, &stack) == 0) {
        neap_stack_set_owner(&stack, "nobody");
        usable += neap_stack_trim(&stack, stack.top);
        neap_stack_free(&stack);
    }
    return usable + static_cast<std::size_t>(malloc_trim(0)) +
           static_cast<std::size_t>(neap_version()[0]);
}
