/* A handler of signals forbids the process new privileges, or leaves a namespace, while the code
   below it on the stack is about to start the purge thread. Argument 1: which signal mask the
   handler interrupts, argument 2: what it does. Linked with -rdynamic: the functions below stand
   before the C library's. */
#include "purge.h"
#include <sched.h>
#include <sys/prctl.h>

static volatile sig_atomic_t handled, wanted;
static int masked, unshares;

static void act(int signal) {
    (void)signal;
    handled++;
    if (unshares) CHECK(unshare(CLONE_FS) == 0);
    else CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
}

/* Within the window: the state says that a thread is being started. */
static void interrupt(void) {
    sigset_t one, before;
    if (!wanted) return;
    wanted = 0;
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    if (!masked) CHECK(pthread_sigmask(SIG_UNBLOCK, &one, &before) == 0);
    CHECK(raise(SIGUSR1) == 0);
    if (!masked) CHECK(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

int pthread_attr_init(pthread_attr_t *attributes) {
    int (*next)(pthread_attr_t *) = (int (*)(pthread_attr_t *))dlsym(RTLD_NEXT, "pthread_attr_init");
    interrupt();
    return next(attributes);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    CHECK(signal(SIGUSR1, act) != SIG_ERR);
    masked = !strcmp(arguments[1], "masked");
    unshares = !strcmp(arguments[2], "unshares");
    wanted = 1;
    alarm(240); /* a handler that waits for ever ends as SIGALRM */
    fill_and_empty();
    CHECK(handled == 1);
    if (!unshares) CHECK(until(none_lives));
    fill_and_empty();
    CHECK(until(unshares ? one_lives : none_lives));
    return 0;
}
