// Two threads replace their blocks while a third forks. The child checks the blocks of the thread
// that forked, replaces them, and ends; its parent waits for it.
#include "../member.h"
#include <pthread.h>
#include <sys/wait.h>

enum { THREADS = 2, PLACES = 30000, REPLACED = 1000, PAUSE_US = 50000 };

static atomic_bool is_over;

static void replace_one(struct block **place, uint64_t *seed) {
    if (*place) {
        check(*place);
        free(*place);
    }
    *place = filled(seed);
    if (!*place)
        wrong("no memory");
}

static void *replace(void *number) {
    static struct block *places[THREADS][PLACES];
    uint64_t seed = 88172645463325252u + (uintptr_t)number;
    while (!is_over) {
        for (int n = 0; n < REPLACED; n++)
            replace_one(&places[(uintptr_t)number][next(&seed) % PLACES], &seed);
        usleep(PAUSE_US / 4);
    }
    return NULL;
}

static void in_child(struct block **places, uint64_t seed) {
    for (int n = 0; n < REPLACED; n++)
        replace_one(&places[next(&seed) % PLACES], &seed);
    _exit(0);
}

static void *fork_on(void *unused) {
    static struct block *places[PLACES];
    uint64_t seed = 2463534242u;
    while (!is_over) {
        for (int n = 0; n < REPLACED; n++)
            replace_one(&places[next(&seed) % PLACES], &seed);
        pid_t child = fork();
        if (child == 0)
            in_child(places, next(&seed));
        int status;
        if (child < 0 || waitpid(child, &status, 0) != child)
            wrong("no child");
        if (status)
            wrong("the child did not end well");
        usleep(PAUSE_US);
    }
    return unused;
}

int main(void) {
    pthread_t threads[THREADS + 1];
    for (uintptr_t n = 0; n <= THREADS; n++)
        if (pthread_create(&threads[n], NULL, n < THREADS ? replace : fork_on, (void *)n))
            wrong("no thread");
    tell_until_closed();
    is_over = 1;
    for (int n = 0; n <= THREADS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}
