/* A coroutine's stack, trimmed below the stack pointer of another. */
#include "misuse.h"
#include "../../include/neap.h"

int main(void) {
    neap_stack_t stack, other;
    if (neap_stack_alloc(1 << 20, &stack) || neap_stack_alloc(1 << 20, &other)) _exit(3);
    char *above = (char *)(stack.top > other.top ? stack.top : other.top);
    neap_stack_trim(above == stack.top ? &other : &stack, above - 1); /* HERE */
    surface();
}
