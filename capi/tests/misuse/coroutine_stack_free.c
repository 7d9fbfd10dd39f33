/* A coroutine's stack, given to free. */
#include "misuse.h"
#include "../../include/neap.h"

int main(void) {
    neap_stack_t stack;
    if (neap_stack_alloc(1 << 20, &stack)) _exit(3);
    free(stack.limit); /* HERE */
    surface();
}
