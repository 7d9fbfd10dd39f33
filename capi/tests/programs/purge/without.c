/* No purge thread, because none can be had (argument 1: refused) or none is wanted (off): activity
   purges, and nothing else changes. */
#include "purge.h"
#include <sys/resource.h>

enum { NOBODY = 65534 };

static void *nothing(void *unused) {
    return unused;
}

/* As a user who has no other process: root may start as many as it likes. */
static void refuse_threads(void) {
    struct rlimit one = {1, 1};
    pthread_t thread;
    if (geteuid() == 0 && (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0))
        skip("cannot become another user");
    CHECK(setrlimit(RLIMIT_NPROC, &one) == 0);
    if ((errno = pthread_create(&thread, NULL, nothing, NULL)) != EAGAIN) skip("threads cannot be refused");
}

static int never_one(void) {
    free(malloc(hidden(100)));
    CHECK(tasks() == 1);
    /* A slow path now and then: activity that only meets magazines sees no clock. */
    empty(fill(256 * BLOCK));
    return at_goal();
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    if (!strcmp(arguments[1], "refused")) refuse_threads();
    goal = resident() + ALLOWANCE;
    for (int turn = 0; turn < 2; turn++) {
        fill_and_empty();
        for (int waited = 0; waited < 300; waited += 5) {
            CHECK(tasks() == 1);
            nap(5);
        }
        CHECK(until(never_one));
    }
    return 0;
}
