/* Forks while other threads allocate, free and trim: locks are taken and given up all the time, and a
   locker that steps back from the closed gate holds its word for a moment. Every child allocates and
   trims, so it takes all of them. */
#include "../check.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 3, SLOTS = 64 };

static volatile int over;

static void work(unsigned rounds, unsigned seed) {
    void *slots[SLOTS] = {0};
    for (unsigned round = 0; round < rounds; round++) {
        seed = seed * 1103515245 + 12345;
        unsigned at = seed >> 16 & (SLOTS - 1);
        free(slots[at]);
        slots[at] = malloc((seed >> 8 & 0xff) * ((seed >> 24 & 1) ? 400 : 8) + 1);
        if (round % 200 == 199) malloc_trim(0);
    }
    for (int at = 0; at < SLOTS; at++) free(slots[at]);
}

static void *worker(void *seed) {
    while (!over) work(400, (unsigned)(long)seed);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    pthread_t threads[THREADS];
    for (long thread = 0; thread < THREADS; thread++)
        CHECK(pthread_create(&threads[thread], NULL, worker, (void *)(thread + 1)) == 0);
    for (int forks = atoi(arguments[1]); forks > 0; forks--) {
        int status = -1;
        pid_t child = fork();
        CHECK(child >= 0);
        if (child == 0) {
            /* A hang ends by this signal, which the parent sees. */
            alarm(20);
            work(400, 7);
            _exit(0);
        }
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    over = 1;
    for (int thread = 0; thread < THREADS; thread++) CHECK(pthread_join(threads[thread], NULL) == 0);
    return 0;
}
