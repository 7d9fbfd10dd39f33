/* The program lowers the limit on its address space while it runs, and while another thread frees:
   threads start after it, and the heap goes on, below the limit. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>

static const size_t limit_bytes = (size_t)512 << 20;
static volatile int over;

static void *churn(void *unused) {
    while (!over) {
        void *blocks[64];
        for (int i = 0; i < 64; i++) blocks[i] = malloc((size_t)(i + 1) << 9);
        for (int i = 0; i < 64; i++) free(blocks[i]);
    }
    return unused;
}

static void *one_block(void *unused) {
    char *block = malloc(1000);
    CHECK(block != NULL);
    memset(block, 1, 1000);
    free(block);
    return unused;
}

static void lower(const char *how) {
    struct rlimit limit = {limit_bytes, RLIM_INFINITY};
    struct rlimit64 limit64 = {limit_bytes, RLIM64_INFINITY};
    if (!strcmp(how, "setrlimit")) CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    else if (!strcmp(how, "setrlimit64")) CHECK(setrlimit64(RLIMIT_AS, &limit64) == 0);
    else if (!strcmp(how, "prlimit")) CHECK(prlimit(0, RLIMIT_AS, &limit, NULL) == 0);
    else CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit64, NULL) == 0);
}

/* What another process does to the limit is noticed by a round of decay, a second later. */
static void wait_for_a_round(void) {
    for (int i = 0; i < 300; i++) {
        pthread_t thread;
        void *blocks[16];
        for (int k = 0; k < 16; k++) blocks[k] = malloc(1 << 20);
        for (int k = 0; k < 16; k++) free(blocks[k]);
        if (pthread_create(&thread, NULL, one_block, NULL) == 0) {
            CHECK(pthread_join(thread, NULL) == 0);
            return;
        }
        nanosleep(&(struct timespec){0, 100000000}, NULL);
    }
    CHECK(!"a thread starts within 30 s");
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    pthread_t churning, threads[8];
    char *kept = malloc(20 << 20);
    memset(kept, 7, 20 << 20);
    CHECK(pthread_create(&churning, NULL, churn, NULL) == 0);
    lower(arguments[1]);
    if (!strcmp(arguments[1], "raw")) wait_for_a_round();
    for (int i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, one_block, NULL) == 0);
    for (int i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    void *more[200];
    for (int i = 0; i < 200; i++) {
        more[i] = malloc(1 << 20);
        CHECK(more[i] != NULL);
        memset(more[i], 3, 1 << 20);
    }
    for (int i = 0; i < 200; i++) free(more[i]);
    CHECK(malloc(limit_bytes) == NULL);
    over = 1;
    CHECK(pthread_join(churning, NULL) == 0);
    for (int i = 0; i < 20 << 20; i++) CHECK(kept[i] == 7);
    free(kept);
    CHECK(served_by_neap("malloc"));
    return 0;
}
