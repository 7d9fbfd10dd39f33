/* mallinfo2 and mallinfo ask the kernel nothing: a tracer counts the system calls of 1,000 of each.
   Exits with 77 where no process may be traced. */
#include "check.h"
#include <malloc.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

enum { ROUNDS = 1000, SKIP = 77 };

static void in_child(void) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(SKIP);
    void *block = malloc(hidden(100));
    size_t sum = mallinfo2().uordblks;
    raise(SIGSTOP);
    for (int round = 0; round < ROUNDS; round++)
        sum += mallinfo2().uordblks + (size_t)mallinfo().uordblks;
    raise(SIGSTOP);
    free(block);
    _exit(sum == 0);
}

/* Lets the child go on, to its next system call if `request` says so, until it stops. */
static int next_stop(pid_t child, int request) {
    int status;
    CHECK(ptrace(request, child, NULL, NULL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static int is_stopped(int status) {
    return WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP;
}

int main(void) {
    CHECK(served_by_neap("mallinfo2"));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0)
        in_child();
    alarm(240);
    int status, stops = 0;
    CHECK(waitpid(child, &status, 0) == child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == SKIP) {
        puts("no process may be traced here");
        return SKIP;
    }
    CHECK(is_stopped(status));
    while (!is_stopped(status = next_stop(child, PTRACE_SYSCALL)))
        CHECK(WIFSTOPPED(status) && ++stops < 100 * ROUNDS);
    /* A call stops the child twice; raising the signal takes a few. */
    printf("%d system calls\n", stops / 2);
    CHECK(stops / 2 <= 10);
    status = next_stop(child, PTRACE_CONT);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    return 0;
}
