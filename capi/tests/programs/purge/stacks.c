/* Stacks that ended are enough for a thread to deal with them: nothing else is freed. */
#include "purge.h"
#include "../../../include/neap.h"

#define COUNT 20000

static neap_stack_t stacks[COUNT];

int main(void) {
    CHECK(served_by_neap("malloc"));
    size_t before = resident();
    goal = before + 2 * ALLOWANCE; /* records of stacks stay */
    for (int i = 0; i < COUNT; i++) {
        CHECK(neap_stack_alloc(64 << 10, &stacks[i]) == 0);
        memset((char *)stacks[i].top - 64, 0x5a, 64);
    }
    CHECK(!at_goal());
    for (int i = 0; i < COUNT; i++) neap_stack_free(&stacks[i]);
    CHECK(until(one_lives));
    CHECK(until(at_goal));
    CHECK(until(one_is_parked));
    return 0;
}
