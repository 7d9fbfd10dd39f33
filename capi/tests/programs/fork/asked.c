/* A raw copy of a process that has grown: its slow paths do not ask the kernel again and again
   whose process they are in. The parent counts the copy's calls. Prints nothing. */
#include "../check.h"
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BLOCKS = 2000, BYTES = 8 << 10, ROUNDS = 20, MOST = 40 };

/* Grows past the size at which a purge thread is worth its price; then every call of malloc is a
   slow path. */
static void fill_and_empty(void) {
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK(blocks[i] = malloc(BYTES + i));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

static int is_question(unsigned long long number) {
    return number == SYS_getpid || number == SYS_prctl;
}

int main(void) {
    int status, asked = 0;
    CHECK(served_by_neap("malloc"));
    alarm(240);
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    CHECK(pid >= 0);
    if (pid == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(77);
        kill(getpid(), SIGSTOP); /* musl's raise would stop the parent. */
        for (int round = 0; round < ROUNDS; round++) fill_and_empty();
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        dprintf(1, "SKIPPED: no process may be traced here\n");
        return 77;
    }
    CHECK(ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) == 0);
    for (;;) {
        CHECK(ptrace(PTRACE_SYSCALL, pid, NULL, NULL) == 0);
        CHECK(waitpid(pid, &status, 0) == pid);
        if (!WIFSTOPPED(status)) break;
        struct __ptrace_syscall_info call;
        if (WSTOPSIG(status) == (SIGTRAP | 0x80) &&
            ptrace(PTRACE_GET_SYSCALL_INFO, pid, sizeof call, &call) > 0 &&
            call.op == PTRACE_SYSCALL_INFO_ENTRY)
            asked += is_question(call.entry.nr);
    }
    CHECK(status == 0);
    if (asked > MOST) dprintf(2, "%d questions\n", asked);
    return asked > MOST;
}
