/* Thread ends: destructors of thread-specific data that allocate and free, in
   any order relative to the library's own; blocks that outlive their thread. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>

enum { KEYS = 40 };
static pthread_key_t keys[KEYS];
static __thread int rounds;

/* Hands its place on, so that the C library goes round the keys more than once. */
static void destructor(void *block) {
    free(block);
    void *zeros = calloc(10, 100);
    CHECK(zeros);
    free(realloc(zeros, 100000));
    if (++rounds < KEYS * 2) {
        pthread_key_t next = keys[rounds % KEYS];
        free(pthread_getspecific(next));
        pthread_setspecific(next, malloc(200));
    }
}

static void *thread(void *carried) {
    for (int i = 0; i < KEYS; i++) CHECK(pthread_setspecific(keys[i], malloc(i * 10 + 1)) == 0);
    memset(carried, 7, 5000);
    free(carried);
    return malloc(3000);
}

static void *only_frees(void *block) {
    free(block);
    return NULL;
}

static size_t live(void) {
    struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void round_of_threads(int count) {
    for (int i = 0; i < count; i++) {
        pthread_t id;
        void *result;
        CHECK(pthread_create(&id, NULL, thread, malloc(5000)) == 0);
        CHECK(pthread_join(id, &result) == 0 && result);
        memset(result, 1, 3000);
        free(result);
        CHECK(pthread_create(&id, NULL, only_frees, malloc(64)) == 0);
        CHECK(pthread_join(id, NULL) == 0);
    }
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    for (int i = 0; i < KEYS; i++) CHECK(pthread_key_create(&keys[i], destructor) == 0);
    round_of_threads(50);
    size_t before = live();
    round_of_threads(1000);
    /* A leak of one destructor's block a thread would be 200 bytes times 1,000. */
    CHECK(live() < before + 100000);
    return 0;
}
