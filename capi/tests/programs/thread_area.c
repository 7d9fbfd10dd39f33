/* In a sandbox, a child with the parent's memory and an empty thread area ends by `_exit`, as one
   of Chromium's does that changes the root. The process ends later, with 64 MiB live. */
#include "check.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

enum { LIVE = 64 << 20 };

static int leave(void *argument) {
    _exit(argument != NULL);
}

int main(void) {
    static _Alignas(64) char area[1 << 14], stack[1 << 16];
    int flags = CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD, status = -1;
    CHECK(served_by_neap("malloc"));
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return 77;
    pid_t child = clone(leave, stack + sizeof stack - 64, flags, NULL, NULL, area, NULL);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    char *volatile block = malloc(LIVE);
    CHECK(block != NULL);
    return 0;
}
