/* A child that the C library does not know of (a raw clone, as sandboxes make) finds the state of
   its parent's purge thread, but not the thread. Argument 1: what it does. */
#include "purge.h"
#include <sched.h>
#include <sys/prctl.h>

static void unshares(void) {
    CHECK(unshare(CLONE_FS) == 0);
}

static void forbids(void) {
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
}

/* Only the child itself gives back what it frees. */
static void frees(void) {
    size_t before = resident();
    empty(fill(2 * FILLED));
    for (int turn = 0; turn < 100 && resident() > before + ALLOWANCE; turn++) {
        nap(20);
        empty(fill(MIB));
    }
    CHECK(resident() <= before + ALLOWANCE);
}

static const struct {
    const char *name;
    void (*act)(void);
} acts[] = {{"unshares", unshares}, {"forbids", forbids}, {"frees", frees}};

int main(int count, char **arguments) {
    CHECK(count == 2);
    for (size_t act = 0; act < sizeof acts / sizeof *acts; act++) {
        if (strcmp(acts[act].name, arguments[1])) continue;
        with_purge_thread();
        /* The thread waits, and holds no lock: until it is rung, or for a decay time far away. */
        CHECK(until(acts[act].act == frees ? one_is_parked : one_sleeps));
        pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid == 0) {
            alarm(240);
            acts[act].act();
            syscall(SYS_exit_group, 0);
        }
        ended_well(pid);
        return 0;
    }
    CHECK(!"an act of this name");
}
