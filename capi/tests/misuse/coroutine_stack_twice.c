/* A coroutine's stack, given back twice. */
#include "misuse.h"
#include "../../include/neap.h"

int main(void) {
    neap_stack_t stack;
    if (neap_stack_alloc(64 << 10, &stack)) _exit(3);
    neap_stack_free(&stack);
    neap_stack_free(&stack); /* HERE */
    surface();
}
