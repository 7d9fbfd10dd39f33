/* fork in a handler of signals that interrupts the heap, while other threads hold locks of it and
   wait for those that the handler's thread holds. Argument 1: how many forks. Argument 2: what the
   children do: `end` at once, or `return` from the handler and go on. */
#include "../check.h"
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

enum { THREADS = 3, SLOTS = 128 };
static volatile sig_atomic_t forks, wanted, returns, is_child;

/* Once, soon: the next time when this handler has returned. */
static void arm(void) {
    struct itimerval soon = {{0, 0}, {0, 200 + forks * 37 % 900}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void on_timer(int number) {
    (void)number;
    int kept = errno, status;
    if (is_child || forks >= wanted) return;
    pid_t pid = fork();
    if (pid == 0) {
        is_child = 1;
        /* A hang ends by this signal, which the parent sees. */
        signal(SIGALRM, SIG_DFL);
        alarm(120);
        if (!returns) _exit(0);
        errno = kept;
        return;
    }
    if (pid < 0) _exit(3);
    if (waitpid(pid, &status, 0) != pid || status != 0) _exit(4);
    forks++;
    errno = kept;
    arm();
}

/* Slow paths, where locks are held, and now and then all of them, one after the other. */
static void churn(unsigned rounds, unsigned *state, unsigned char **slots) {
    for (; rounds > 0; rounds--) {
        *state = *state * 1103515245 + 12345;
        unsigned at = *state >> 16 & (SLOTS - 1);
        size_t size = *state >> 30 ? 8192 + (*state >> 8 & 0x1ffff) : 16 + (*state >> 8 & 0x7ff);
        free(slots[at]);
        slots[at] = malloc(size);
        CHECK(slots[at]);
        slots[at][0] = slots[at][size - 1] = (unsigned char)at;
        if (*state % 97 == 0) malloc_trim(0);
    }
}

static void *work(void *seed) {
    static _Thread_local unsigned char *slots[SLOTS];
    unsigned state = (unsigned)(uintptr_t)seed;
    for (;;) churn(1000, &state, slots);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    wanted = atoi(arguments[1]);
    returns = !strcmp(arguments[2], "return");
    /* A parent that hangs ends by a signal that its handler does not mask. */
    timer_t limit;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec most = {.it_value = {.tv_sec = 280}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &limit) == 0);
    CHECK(timer_settime(limit, 0, &most, NULL) == 0);
    sigset_t timer;
    sigemptyset(&timer);
    sigaddset(&timer, SIGALRM);
    CHECK(pthread_sigmask(SIG_BLOCK, &timer, NULL) == 0);
    for (uintptr_t i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, work, (void *)(i + 1)) == 0);
    }
    CHECK(pthread_sigmask(SIG_UNBLOCK, &timer, NULL) == 0);
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    arm();
    static unsigned char *slots[SLOTS];
    unsigned state = 7;
    while (forks < wanted && !is_child) churn(50, &state, slots);
    if (is_child) churn(500, &state, slots);
    _exit(0);
}
