// 16 producers each keep 40,000 messages of 592 bytes (379 MB in all) and replace random ones. The
// old messages go through a bounded queue to one reclaimer, which calls nothing but free.
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PRODUCERS = 16, LIVE = 40000, BYTES = 592, REPLACED = 800000, BATCH = 64, QUEUE = 256 };

// A batch of old messages on its way to the reclaimer.
struct batch {
    void *messages[BATCH];
};

static struct batch queue[QUEUE];
static unsigned queued, taken, ended;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t room = PTHREAD_COND_INITIALIZER, work = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t filled, over;
static _Atomic uint64_t sum;

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

static void *message(uint64_t stamp) {
    uint64_t *new = malloc(BYTES);
    memset(new, (int)stamp, BYTES);
    *new = stamp;
    return new;
}

static void hand_over(const struct batch *batch) {
    pthread_mutex_lock(&lock);
    while (queued - taken == QUEUE)
        pthread_cond_wait(&room, &lock);
    queue[queued++ % QUEUE] = *batch;
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
}

static void *produce(void *number) {
    uint64_t seed = 88172645463325252u + (uintptr_t)number;
    // The table is the program's own, so that the threads allocate messages only.
    static uint64_t *live[PRODUCERS][LIVE];
    uint64_t **own = live[(uintptr_t)number];
    for (int n = 0; n < LIVE; n++)
        own[n] = message(next(&seed));
    pthread_barrier_wait(&filled);
    struct batch batch;
    for (int n = 0; n < REPLACED; n++) {
        uint64_t **place = &own[next(&seed) % LIVE];
        batch.messages[n % BATCH] = *place;
        *place = message(next(&seed));
        if (n % BATCH == BATCH - 1)
            hand_over(&batch);
    }
    uint64_t own_sum = 0;
    for (int n = 0; n < LIVE; n++)
        own_sum += *own[n];
    sum += own_sum;
    pthread_mutex_lock(&lock);
    ended++;
    pthread_cond_signal(&work);
    pthread_mutex_unlock(&lock);
    pthread_barrier_wait(&over);
    return NULL;
}

static void *reclaim(void *unused) {
    for (;;) {
        pthread_mutex_lock(&lock);
        while (queued == taken && ended < PRODUCERS)
            pthread_cond_wait(&work, &lock);
        if (queued == taken) {
            pthread_mutex_unlock(&lock);
            break;
        }
        struct batch batch = queue[taken++ % QUEUE];
        pthread_cond_signal(&room);
        pthread_mutex_unlock(&lock);
        for (int n = 0; n < BATCH; n++)
            free(batch.messages[n]);
    }
    printf("check %016llx\nlive %ld\n", (unsigned long long)sum, (long)PRODUCERS * LIVE * BYTES);
    say("rest");
    pthread_barrier_wait(&over);
    return unused;
}

int main(void) {
    pthread_t threads[PRODUCERS + 1];
    pthread_barrier_init(&filled, NULL, PRODUCERS + 1);
    pthread_barrier_init(&over, NULL, PRODUCERS + 2);
    pthread_create(&threads[PRODUCERS], NULL, reclaim, NULL);
    for (uintptr_t n = 0; n < PRODUCERS; n++)
        pthread_create(&threads[n], NULL, produce, (void *)n);
    pthread_barrier_wait(&filled);
    say("work");
    char byte;
    while (read(0, &byte, 1) > 0) {}
    pthread_barrier_wait(&over);
    for (int n = 0; n <= PRODUCERS; n++)
        pthread_join(threads[n], NULL);
    return 0;
}
