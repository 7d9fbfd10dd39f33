/* A thread starts the purge thread and is preempted right after. Meanwhile the purge thread ends,
   for a second thread wants none, and this one's own start is refused. Then the first goes on: it
   must not take the refused start for its own. Linked with -rdynamic: the functions below stand
   before the C library's. */
#include "purge.h"
#include <sched.h>
#include <stdatomic.h>

/* 1: the first start is under way; 2: the second. */
static atomic_int reached;
static __thread int starter;

static void await(int step) {
    for (int waited = 0; reached < step; waited += 5) {
        CHECK(waited < PATIENCE_MS);
        nap(5);
    }
}

/* After the purge thread was created. */
int pthread_attr_destroy(pthread_attr_t *attributes) {
    int (*next)(pthread_attr_t *) = (int (*)(pthread_attr_t *))dlsym(RTLD_NEXT, "pthread_attr_destroy");
    if (starter == 1 && reached == 0) {
        reached = 1;
        await(2);
    }
    return next(attributes);
}

/* Before it is created. */
int pthread_attr_init(pthread_attr_t *attributes) {
    int (*next)(pthread_attr_t *) = (int (*)(pthread_attr_t *))dlsym(RTLD_NEXT, "pthread_attr_init");
    if (starter == 2 && reached == 1) {
        reached = 2;
        nap(300); /* the first thread goes on; if it does not yet, nothing is shown */
        return EAGAIN;
    }
    return next(attributes);
}

static void *second(void *unused) {
    starter = 2;
    await(1);
    CHECK(unshare(CLONE_FS) == 0); /* waits until no purge thread is there */
    fill_and_empty();
    return unused;
}

int main(void) {
    pthread_t thread;
    CHECK(served_by_neap("malloc"));
    alarm(60); /* a wait without end ends as SIGALRM */
    CHECK(pthread_create(&thread, NULL, second, NULL) == 0);
    starter = 1;
    fill_and_empty();
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(reached == 2);
    CHECK(unshare(CLONE_FS) == 0);
    nap(1100); /* a start that was refused is tried again after a second */
    fill_and_empty();
    CHECK(until(one_lives));
    return 0;
}
