/* A large block is taken while there are free resident pages that cannot serve it, one in each
   slice: these go at once, long before their time, and not one of the block's is touched for it. */
#include "purge.h"
#include "../../../include/neap.h"

enum { COUNT = 20000, LARGE = 48 * MIB };

static neap_stack_t stacks[COUNT];

int main(void) {
    CHECK(served_by_neap("malloc"));
    for (int i = 0; i < COUNT; i++) {
        CHECK(neap_stack_alloc(64 << 10, &stacks[i]) == 0);
        memset((char *)stacks[i].top - 64, 0x5a, 64);
    }
    for (int i = 0; i < COUNT; i++) neap_stack_free(&stacks[i]);
    CHECK(until(one_lives));
    size_t before = resident();
    nap(300);
    CHECK(resident() + ALLOWANCE > before);
    goal = before - LARGE + 2 * ALLOWANCE;
    char *block = malloc(LARGE);
    CHECK(block);
    CHECK(until(at_goal));
    free(block);
    return 0;
}
