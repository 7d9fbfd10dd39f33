/* A program with LOCAL bytes of thread-local variables, which glibc puts on the stack of every
   thread: the thread is there, and what was freed goes home. */
#include "purge.h"

static __thread volatile char own[LOCAL];

int main(void) {
    own[hidden(LOCAL) - 1] = 1;
    goal = resident() + ALLOWANCE + LOCAL;
    with_purge_thread();
    CHECK(until(at_goal) && until(one_is_parked));
    return 0;
}
