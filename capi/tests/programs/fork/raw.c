/* Copies of the process past the C library's fork: a child that allocates while the parent's purge
   thread worked. Argument 1: how many rounds. Argument 2: how: `syscall`, `clone`, `clone3`,
   `clone3-short`, `fork-number`, `_Fork`. */
#include "../check.h"
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static unsigned state = 1;

static void churn(unsigned rounds) {
    static unsigned char *slots[256];
    for (; rounds > 0; rounds--) {
        state = state * 1103515245 + 12345;
        unsigned at = state >> 16 & 255;
        size_t size = 16 + (state >> 8 & (state >> 29 ? 0x7ff : 0x3ffff));
        free(slots[at]);
        slots[at] = calloc(1, size);
        CHECK(slots[at] && slots[at][0] == 0 && slots[at][size - 1] == 0);
        slots[at][0] = slots[at][size - 1] = 1;
    }
}

static int child(void *unused) {
    (void)unused;
    churn(50);
    return 0;
}

static pid_t copy(const char *way) {
    static char stack[256 << 10] __attribute__((aligned(16)));
    if (!strcmp(way, "clone")) return clone(child, stack + sizeof stack, SIGCHLD, NULL);
    if (!strcmp(way, "clone3")) {
        struct clone_args arguments = {.exit_signal = SIGCHLD};
        /* The kernel refuses what neither it nor Neap can read. */
        CHECK(syscall(SYS_clone3, (void *)1, sizeof arguments) == -1 && errno == EFAULT);
        return (pid_t)syscall(SYS_clone3, &arguments, sizeof arguments);
    }
    if (!strcmp(way, "clone3-short")) { /* as Linux 5.3 had it */
        struct clone_args arguments = {.exit_signal = SIGCHLD};
        return (pid_t)syscall(SYS_clone3, &arguments, CLONE_ARGS_SIZE_VER0);
    }
    if (!strcmp(way, "_Fork")) return _Fork();
#ifdef SYS_fork
    if (!strcmp(way, "fork-number")) return (pid_t)syscall(SYS_fork);
#endif
    return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    for (int left = atoi(arguments[1]); left > 0; left--) {
        churn(20);
        pid_t pid = copy(arguments[2]);
        CHECK(pid >= 0);
        if (pid == 0) {
            child(NULL);
            syscall(SYS_exit_group, 0);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    return 0;
}
