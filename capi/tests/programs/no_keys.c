/* The program has taken every other key for thread-specific data, and its threads
   run destructors in all four rounds, on after the library's own. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>

static pthread_key_t last;
static __thread int rounds;

static void use(void) {
    char *blocks[100];
    for (int i = 0; i < 100; i++) {
        CHECK((blocks[i] = malloc(i * 30 + 1)));
        blocks[i][0] = (char)i;
    }
    for (int i = 0; i < 100; i++) {
        CHECK(blocks[i][0] == (char)i && (blocks[i] = realloc(blocks[i], i * 60 + 1)));
        free(blocks[i]);
    }
    void *large = calloc(1, 1 << 20);
    CHECK(large);
    free(large);
}

/* Runs in all four rounds that the C library grants. */
static void again(void *block) {
    free(block);
    use();
    if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS) CHECK(pthread_setspecific(last, malloc(64)) == 0);
}

static void *thread(void *unused) {
    use();
    CHECK(pthread_setspecific(last, malloc(64)) == 0);
    return unused;
}

int main(void) {
    pthread_t id;
    CHECK(served_by_neap("malloc"));
    CHECK(pthread_key_create(&last, again) == 0);
    pthread_key_t ignored;
    while (pthread_key_create(&ignored, NULL) == 0) continue;
    for (int i = 0; i < 200; i++) {
        CHECK(pthread_create(&id, NULL, thread, NULL) == 0);
        CHECK(pthread_join(id, NULL) == 0);
    }
    malloc_trim(0);
    use();
    CHECK(mallinfo2().uordblks < 1 << 20);
    return 0;
}
