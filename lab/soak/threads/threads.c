// Four threads start others, one after another. Each of these replaces blocks of a shared table, so
// that most blocks are freed by another thread than the one that allocated them.
#include "../member.h"
#include <pthread.h>

enum { STARTERS = 4, PLACES = 40000, REPLACED = 2000, PAUSE_US = 20000 };

static _Atomic(struct block *) places[PLACES];
static atomic_bool is_over;
static _Atomic uint64_t started;

static void *replace_some(void *unused) {
    uint64_t seed = 88172645463325252u + ++started * 2654435761u;
    for (int n = 0; n < REPLACED; n++) {
        struct block *made = filled(&seed);
        if (!made)
            wrong("no memory");
        struct block *old = atomic_exchange(&places[next(&seed) % PLACES], made);
        if (old) {
            check(old);
            free(old);
        }
    }
    return unused;
}

static void *start_others(void *unused) {
    while (!is_over) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, replace_some, NULL))
            wrong("no thread");
        pthread_join(thread, NULL);
        usleep(PAUSE_US);
    }
    return unused;
}

int main(void) {
    pthread_t starters[STARTERS];
    for (int n = 0; n < STARTERS; n++)
        if (pthread_create(&starters[n], NULL, start_others, NULL))
            wrong("no thread");
    tell_until_closed();
    is_over = 1;
    for (int n = 0; n < STARTERS; n++)
        pthread_join(starters[n], NULL);
    for (int n = 0; n < PLACES; n++)
        if (places[n]) {
            check(places[n]);
            free(places[n]);
        }
    return 0;
}
