/* Forks where a signal comes within the C library's `fork` (signalled_library.c). Without handlers
   of its own, its handler of signals runs after the fork: glibc holds a lock meanwhile that a fork
   in the handler would wait for. Then with handlers, which find the thread's own mask. */
#define _GNU_SOURCE
#include "../check.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t *handled, *handled_within;

static void expects_no_mask(void) {
    sigset_t mask;
    CHECK(pthread_sigmask(SIG_BLOCK, NULL, &mask) == 0);
    CHECK(!sigismember(&mask, SIGUSR1) && !sigismember(&mask, SIGTERM));
}

static void forks(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    expects_no_mask();
    if (child == 0) _exit(0);
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    handled = dlsym(RTLD_DEFAULT, "handled");
    handled_within = dlsym(RTLD_DEFAULT, "handled_within");
    CHECK(handled && handled_within);
    free(malloc(100));
    forks();
    CHECK(*handled == 2 && *handled_within == 0);
    CHECK(pthread_atfork(expects_no_mask, expects_no_mask, expects_no_mask) == 0);
    forks();
    CHECK(*handled == 4);
    return 0;
}
