/* A library with a `fork` that a signal interrupts on both sides of the C library's. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

/* How often the signal's handler ran, and how often of these within `fork`. */
volatile sig_atomic_t handled, handled_within;
static volatile sig_atomic_t within;

static void handle(int signal) {
    (void)signal;
    handled++;
    handled_within += within;
}

pid_t fork(void) {
    pid_t (*next)(void) = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
    signal(SIGUSR1, handle);
    signal(SIGUSR2, handle);
    within = 1;
    raise(SIGUSR1);
    pid_t child = next();
    raise(SIGUSR2);
    within = 0;
    return child;
}
