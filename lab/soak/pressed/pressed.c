// Two threads allocate until the limit refuses, and then free a third of their blocks at random.
#include "../member.h"
#include <pthread.h>

enum { THREADS = 2, PLACES = 400000, PAUSE_US = 100000 };

static atomic_bool is_over;
static _Atomic uint64_t refused;

static void fill(struct block **places, int *count, uint64_t *seed) {
    while (*count < PLACES) {
        errno = 0;
        struct block *made = filled(seed);
        if (!made) {
            if (errno != ENOMEM)
                wrong("a refusal without ENOMEM");
            refused++;
            return;
        }
        places[(*count)++] = made;
    }
}

static void free_a_third(struct block **places, int *count, uint64_t *seed) {
    for (int left = *count / 3; left > 0; left--) {
        int place = (int)(next(seed) % (uint64_t)*count);
        check(places[place]);
        free(places[place]);
        places[place] = places[--*count];
    }
}

static void *press(void *number) {
    static struct block *places[THREADS][PLACES];
    uint64_t seed = 88172645463325252u + (uintptr_t)number;
    struct block **own = places[(uintptr_t)number];
    int count = 0;
    while (!is_over) {
        fill(own, &count, &seed);
        free_a_third(own, &count, &seed);
        usleep(PAUSE_US);
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    for (uintptr_t n = 0; n < THREADS; n++)
        if (pthread_create(&threads[n], NULL, press, (void *)n))
            wrong("no thread");
    tell_until_closed();
    is_over = 1;
    for (int n = 0; n < THREADS; n++)
        pthread_join(threads[n], NULL);
    if (!refused)
        wrong("nothing was refused");
    return 0;
}
