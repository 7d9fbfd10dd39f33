/* A thread of real-time priority calls unshare while the purge thread, which has none, is at work
   on the same processor. It waits asleep: who spins there keeps the other from its work. */
#include "purge.h"
#include <sched.h>
#include <sys/resource.h>

enum { ROUNDS = 10, MOST_MS = 1000 };

static long processor_ms(void) {
    struct timespec time;
    CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
    return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void become(int policy, int priority) {
    struct sched_param parameters = {.sched_priority = priority};
    if (sched_setscheduler(0, policy, &parameters) != 0) skip("no real-time priority");
}

int main(void) {
    cpu_set_t one;
    long spent = 0;
    CHECK(served_by_neap("malloc"));
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
    alarm(240);
    for (int round = 0; round < ROUNDS; round++) {
        become(SCHED_OTHER, 0);
        /* So soon after the last call no thread is started. */
        nap(25);
        fill_and_empty();
        CHECK(until(one_lives));
        become(SCHED_FIFO, 10);
        long before = processor_ms();
        CHECK(unshare(CLONE_FS) == 0);
        spent += processor_ms() - before;
        CHECK(none_lives());
    }
    if (spent > MOST_MS) dprintf(2, "%ld ms of processor time\n", spent);
    CHECK(spent <= MOST_MS);
    return 0;
}
