/* Two threads fork in the ordinary way while a third forks in handlers of signals that interrupt
   malloc and free. The children of the ordinary forks can allocate, because none of their locks
   stays held. Argument 1: the number of ordinary forks. */
#include "../check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>

/* A child that takes longer than CHILD_SECONDS hangs. */
enum { SLOTS = 128, CHILD_SECONDS = 60 };

static atomic_int left, over;

/* Mostly slow paths. */
static void churn(unsigned seed, unsigned rounds) {
    void *slots[SLOTS] = {0};
    unsigned state = seed;
    for (; rounds > 0; rounds--) {
        state = state * 1103515245 + 12345;
        unsigned at = state >> 16 & (SLOTS - 1);
        size_t size = state >> 28 ? 16 + (state >> 8 & 0x7ff) : 8192 + (state >> 8 & 0x3ffff);
        free(slots[at]);
        slots[at] = malloc(size);
        CHECK(slots[at]);
        *(volatile char *)slots[at] = 1;
    }
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
}

static void await(pid_t child) {
    int status;
    pid_t ended;
    while ((ended = waitpid(child, &status, 0)) < 0 && errno == EINTR) {}
    CHECK(ended == child && status == 0);
}

static void *forks(void *nothing) {
    while (atomic_fetch_sub(&left, 1) > 0) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            alarm(CHILD_SECONDS);
            churn(getpid(), 500);
            _exit(0);
        }
        await(child);
    }
    return nothing;
}

/* The child may contain half a change of its own thread's, so it only ends. */
static void on_signal(int number) {
    (void)number;
    int error = errno;
    pid_t child = fork();
    if (child == 0) _exit(0);
    if (child > 0) await(child);
    errno = error;
}

static void *interrupted(void *nothing) {
    for (unsigned seed = 1; !over; seed++) churn(seed, 500);
    return nothing;
}

static void *busy(void *nothing) {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    for (unsigned seed = 1; !over; seed++) churn(~seed, 500);
    return nothing;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    left = atoi(arguments[1]);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    void *(*parts[])(void *) = {interrupted, busy, forks, forks};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, parts[i], NULL) == 0);
    while (left > 0) {
        pthread_kill(threads[0], SIGUSR1);
        usleep(2000);
    }
    for (int i = 2; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    over = 1;
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
