/* A timer interrupts malloc and free at every point; the handler does only what a handler may.
   errno is the program's own again afterwards, and so are the blocks. */
#include "check.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/time.h>
#include <time.h>

static atomic_long interruptions;

static void handler(int signal) {
    int kept = errno;
    struct timespec time;
    char ignored;
    clock_gettime(CLOCK_MONOTONIC, &time);
    (void)!read(-1, &ignored, signal != 0);
    interruptions++;
    errno = kept;
}

static void *churn(void *seed) {
    enum { SLOTS = 128 };
    size_t *slots[SLOTS] = {0};
    unsigned state = (unsigned)(uintptr_t)seed;
    while (interruptions < 400) {
        state = state * 1664525 + 1013904223;
        size_t **slot = &slots[state >> 25], bytes = 16 + (state >> 4 & (state & 7 ? 1023 : 0x7ffff));
        CHECK(!*slot || (*slot)[0] == (size_t)*slot);
        errno = EDOM;
        free(*slot);
        CHECK((*slot = state & 8 ? malloc(bytes) : calloc(1, bytes)) && errno == EDOM);
        (*slot)[0] = (size_t)*slot;
    }
    for (int i = 0; i < SLOTS; i++) free(slots[i]);
    return NULL;
}

int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct itimerval every = {{0, 100}, {0, 100}};
    pthread_t other;
    CHECK(served_by_neap("malloc"));
    alarm(240);
    CHECK(sigaction(SIGPROF, &action, NULL) == 0 && setitimer(ITIMER_PROF, &every, NULL) == 0);
    CHECK(pthread_create(&other, NULL, churn, (void *)2) == 0);
    churn((void *)1);
    CHECK(pthread_join(other, NULL) == 0);
    return 0;
}
