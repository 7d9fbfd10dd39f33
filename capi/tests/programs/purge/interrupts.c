/* unshare in a handler of signals that interrupts the heap at any point, also under a lock that the
   purge thread waits for. */
#include "purge.h"
#include <sched.h>
#include <sys/time.h>

enum { CALLS = 300, BLOCKS = 64 };

static volatile sig_atomic_t calls;

static void handler(int signal) {
    int kept = errno;
    (void)signal;
    CHECK(unshare(CLONE_FS) == 0);
    calls++;
    errno = kept;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 300}, {0, 300}};
    CHECK(served_by_neap("malloc"));
    alarm(240); /* a handler that waits for ever ends as SIGALRM */
    with_purge_thread();
    CHECK(sigaction(SIGPROF, &action, NULL) == 0 && setitimer(ITIMER_PROF, &every, NULL) == 0);
    while (calls < CALLS) {
        char *blocks[BLOCKS];
        for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(70000 + i * 5000)) && memset(blocks[i], 1, 70000));
        for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    }
    return 0;
}
