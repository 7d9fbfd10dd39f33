/* What is freed goes home whoever freed it, where the thread is parked: argument 1 says who. */
#include "purge.h"
#include <search.h>

enum { THREADS = 1000, BLOCKS = 50, SIZE = 208, NODES = 400000 };

static pthread_barrier_t all;
static struct block *list;
static char keys[NODES];

static void *take_and_free(void *unused) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(SIZE)) && memset(blocks[i], 0x5a, SIZE));
    pthread_barrier_wait(&all);
    pthread_barrier_wait(&all);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    return unused;
}

/* Threads that meet no slow path of free but their end. */
static void threads(void) {
    static pthread_t ids[THREADS];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, 64 << 10) == 0);
    CHECK(pthread_barrier_init(&all, NULL, THREADS + 1) == 0);
    for (int i = 0; i < THREADS; i++)
        if ((errno = pthread_create(&ids[i], &attributes, take_and_free, NULL))) skip("1,000 threads");
    pthread_barrier_wait(&all);
    goal = resident() - THREADS * BLOCKS * SIZE / 10 * 8;
    pthread_barrier_wait(&all);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

static int order(const void *one, const void *other) {
    return (one > other) - (one < other);
}

static void keep(void *key) {
    (void)key;
}

static void c_library(void) {
    void *root = NULL;
    for (int i = 0; i < NODES; i++) CHECK(tsearch(&keys[i], &root, order));
    goal = resident() - NODES * 32 / 10 * 8;
    tdestroy(root, keep);
}

static void empty_list(int signal) {
    (void)signal;
    empty(list);
}

static void handler(void) {
    CHECK(signal(SIGUSR1, empty_list) != SIG_ERR);
    list = fill(FILLED);
    goal = resident() - FILLED / 10 * 8;
    CHECK(raise(SIGUSR1) == 0);
}

static const struct {
    const char *name;
    void (*act)(void);
} ways[] = {{"threads", threads}, {"c-library", c_library}, {"handler", handler}};

int main(int count, char **arguments) {
    CHECK(count == 2);
    with_purge_thread();
    nap(4000); /* a thread that comes and goes is gone */
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (strcmp(ways[way].name, arguments[1])) continue;
        ways[way].act();
        CHECK(until(at_goal) && until(one_is_parked));
        return 0;
    }
    CHECK(!"a way of this name");
}
