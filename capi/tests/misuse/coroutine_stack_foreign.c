/* A block, given back as a coroutine's stack. */
#include "misuse.h"
#include "../../include/neap.h"

int main(void) {
    neap_stack_t stack = {(char *)malloc(64 << 10) + (64 << 10), NULL, 0};
    neap_stack_free(&stack); /* HERE */
    surface();
}
