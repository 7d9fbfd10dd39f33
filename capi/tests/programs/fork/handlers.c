/* Threads fork at the same time, all but one of them in handlers of signals that interrupt the
   heap. The children end at once: what another thread was changing they may not use. Argument 1:
   how many forks. Argument 2: `fork` or `_Fork`. */
#include "../check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

enum { THREADS = 3, SLOTS = 128 };
static atomic_int forks, over;
static pid_t (*copy)(void);

static void fork_once(void) {
    int status;
    pid_t pid = copy();
    if (pid == 0) _exit(0);
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0) _exit(4);
    forks++;
}

static void on_signal(int number) {
    (void)number;
    int kept = errno;
    fork_once();
    errno = kept;
}

/* Slow paths, where locks are held. */
static void *work(void *seed) {
    unsigned char *slots[SLOTS] = {0};
    unsigned state = (unsigned)(uintptr_t)seed;
    while (!over) {
        state = state * 1103515245 + 12345;
        unsigned at = state >> 16 & (SLOTS - 1);
        size_t size = 8192 + (state >> 8 & 0x1ffff);
        free(slots[at]);
        slots[at] = malloc(size);
        CHECK(slots[at]);
        slots[at][0] = slots[at][size - 1] = 1;
    }
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t threads[THREADS];
    CHECK(count == 3 && served_by_neap("malloc"));
    copy = strcmp(arguments[2], "fork") ? _Fork : fork;
    /* A deadlock ends so: threads that fork mask all other signals. */
    timer_t limit;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGKILL};
    struct itimerspec most = {.it_value = {.tv_sec = 240}};
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &limit) == 0);
    CHECK(timer_settime(limit, 0, &most, NULL) == 0);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int wanted = atoi(arguments[1]); forks < wanted;) {
        for (int i = 0; i < THREADS; i++) CHECK(pthread_kill(threads[i], SIGUSR1) == 0);
        fork_once();
    }
    over = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
