/* A filter that kills who starts a thread or asks for what a program of old does not know. 64 MiB
   freed under it are purged by activity, if at all: the process lives. Argument 1: how it comes to
   be.

   `unknown`: the process cannot ask for filters, as on a kernel without them. The thread starts. */
#include "purge.h"
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <sys/prctl.h>

#define KILL_ON(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    KILL_ON(SYS_clone),
    KILL_ON(SYS_clone3),
    KILL_ON(SYS_membarrier),
    KILL_ON(449), /* futex_waitv */
    KILL_ON(SYS_pidfd_open),
    KILL_ON(SYS_userfaultfd),
    KILL_ON(SYS_gettid),
    KILL_ON(SYS_tgkill),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};

static void by_prctl(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) skip("no new privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) != 0) skip("seccomp");
}

static void by_syscall(void) {
    CHECK(syscall(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) != 0) skip("seccomp");
}

/* Answers PR_GET_SECCOMP as a kernel without filters does. */
static void hide_filters(void) {
    static struct sock_filter hiding[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_GET_SECCOMP, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof hiding / sizeof *hiding, hiding};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) skip("no new privileges");
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) skip("seccomp");
    CHECK(prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == -1 && errno == EINVAL);
}

/* The filter does kill, in a child. */
static void bites(void) {
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        by_syscall();
        syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
        _exit(0);
    }
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED) _exit(SKIPPED);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS);
}

/* Frees much, thrice, with time between for whoever would start a thread. */
static void live_on(void) {
    for (int turn = 0; turn < 3; turn++) {
        fill_and_empty();
        void *large = malloc(FILLED);
        CHECK(large);
        memset(large, 0x5a, FILLED);
        free(large);
        nap(300);
    }
}

int main(int count, char **arguments) {
    CHECK(count >= 2 && served_by_neap("malloc"));
    const char *way = arguments[1];
    if (!strcmp(way, "unknown") && count == 2) {
        hide_filters();
        execl("/proc/self/exe", arguments[0], way, "again", NULL);
        CHECK(!"back from exec");
    }
    if (!strcmp(way, "unknown")) return with_purge_thread(), 0;
    if (!strcmp(way, "inherited") && count == 2) {
        bites();
        by_syscall();
        execl("/proc/self/exe", arguments[0], way, "again", NULL);
        CHECK(!"back from exec");
    }
    if (!strcmp(way, "inherited")) return live_on(), 0;
    bites();
    if (!strcmp(way, "late")) {
        with_purge_thread();
        by_prctl();
        live_on();
        CHECK(until(none_lives));
        CHECK(unshare(CLONE_FS) == 0);
        return live_on(), 0;
    }
    if (!strcmp(way, "prctl")) return by_prctl(), live_on(), 0;
    CHECK(!strcmp(way, "syscall"));
    return by_syscall(), live_on(), 0;
}
