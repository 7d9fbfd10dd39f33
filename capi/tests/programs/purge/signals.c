/* The purge thread never runs the program's signal handlers. */
#include "purge.h"

static volatile sig_atomic_t handler_ran_in;

static void note(int signal) {
    (void)signal;
    handler_ran_in = (sig_atomic_t)syscall(SYS_gettid);
}

/* What a program may handle: all but those that no program can, and those that the C library
   keeps. */
static uint64_t all_of_the_programs(void) {
    uint64_t all = 0;
    for (int signal = 1; signal <= 64; signal++)
        if (signal != SIGKILL && signal != SIGSTOP && (signal < 32 || signal >= SIGRTMIN)) all |= 1ull << (signal - 1);
    return all;
}

static int masks_them_all(int task) {
    char path[64], text[4096];
    if (!is_purge_thread(task)) return 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", task);
    CHECK(read_file(path, text, sizeof text) > 0);
    const char *line = strstr(text, "\nSigBlk:\t");
    CHECK(line);
    uint64_t blocked = strtoull(line + strlen("\nSigBlk:\t"), NULL, 16);
    CHECK((blocked & 3ull << 31) == 0); /* or setuid would hang */
    return (blocked & all_of_the_programs()) == all_of_the_programs();
}

int main(void) {
    struct sigaction action = {.sa_handler = note};
    sigset_t usr1, pending, before, after;
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before) == 0);
    with_purge_thread();
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &after) == 0);
    /* Whoever started it has the mask that it had. */
    for (int signal = 1; signal <= 64; signal++)
        CHECK(sigismember(&before, signal) == sigismember(&after, signal));
    CHECK(count_tasks(masks_them_all) == 1);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &usr1, NULL) == 0);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    nap(200);
    CHECK(one_lives());
    CHECK(handler_ran_in == 0 && sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
    CHECK(pthread_sigmask(SIG_UNBLOCK, &usr1, NULL) == 0);
    CHECK(handler_ran_in == getpid());
    return 0;
}
