/* A crowd of threads that fill their magazines and stay: beyond the first 4 KiB of each class all
   together keep to the process's bound, argument 2 in bytes. What they hold comes back when they
   end. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>

static pthread_barrier_t filled, asked;

enum { SIZES = 10, FIRST = 4096 };

static void fill_magazines(void) {
    void *blocks[64];
    for (size_t size = 16; size < 16 << SIZES; size *= 2)
        for (int round = 0; round < 4; round++) {
            for (int i = 0; i < 64; i++) CHECK((blocks[i] = malloc(size)));
            for (int i = 0; i < 64; i++) free(blocks[i]);
        }
}

static void *stay(void *unused) {
    fill_magazines();
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&asked);
    return unused;
}

int main(int arguments, char **argument) {
    CHECK(arguments >= 3 && served_by_neap("malloc"));
    int threads = atoi(argument[1]);
    size_t bound = strtoul(argument[2], NULL, 10);
    pthread_t *ids = calloc(threads, sizeof *ids);
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    size_t least = PTHREAD_STACK_MIN;
    CHECK(pthread_attr_setstacksize(&attributes, least > 64 << 10 ? least : 64 << 10) == 0);
    pthread_barrier_init(&filled, NULL, threads + 1);
    pthread_barrier_init(&asked, NULL, threads + 1);
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&ids[i], &attributes, stay, NULL) == 0);
    pthread_barrier_wait(&filled);
    struct mallinfo2 all = mallinfo2();
    pthread_barrier_wait(&asked);
    for (int i = 0; i < threads; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    struct mallinfo2 alone = mallinfo2();
    if (arguments > 3)
        printf("%d threads: %zu in magazines, arena %zu; alone: %zu\n", threads, all.fsmblks,
            all.arena, alone.fsmblks);
    CHECK(all.fsmblks > 0 && all.fsmblks <= bound + (size_t)threads * SIZES * FIRST);
    CHECK(alone.fsmblks <= 1 << 20 && alone.fsmblks <= bound);
    return 0;
}
