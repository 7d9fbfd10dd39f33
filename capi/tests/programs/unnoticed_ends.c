/* Threads whose first calls of the heap come after the destructor that would end their caches.
   What they leave behind does not grow with their number, and the purge thread does not keep the
   process alive. Argument 1: how the threads end (see `ways`). Argument 2: whether main then
   `returns` or `exits` like a thread. */
#include "resident.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

/* Stacks of 8 MiB: the C library keeps few of them, and frees the rest as further threads end. */
enum { BATCH = 40, BATCHES = 100, STACK_BYTES = 8 << 20, BLOCKS = 200000, SECONDS = 60 };

static atomic_int live;
static pthread_key_t key;

static void *idles(void *nothing) {
    usleep(2000);
    live--;
    return nothing;
}

static void destructor(void *value) {
    uintptr_t round = (uintptr_t)value;
    if (round < PTHREAD_DESTRUCTOR_ITERATIONS) {
        CHECK(pthread_setspecific(key, (void *)(round + 1)) == 0);
        return;
    }
    void *block = malloc(hidden(100));
    CHECK(block);
    free(block);
    live--;
}

static void *allocates_in_the_last_round(void *nothing) {
    CHECK(pthread_setspecific(key, (void *)1) == 0);
    return nothing;
}

static void *(*const ways[])(void *) = {idles, allocates_in_the_last_round};

static void batch(void *(*way)(void *), pthread_attr_t *attributes) {
    for (int i = 0; i < BATCH; i++) {
        pthread_t id;
        live++;
        CHECK(pthread_create(&id, attributes, way, NULL) == 0);
    }
    while (live > 0) usleep(500);
    usleep(3000);
}

/* Allocates enough that the purge thread starts. */
static void grow(void) {
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(100)) != NULL);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
}

/* A child kills a process that does not end. */
static void watch(void) {
    pid_t watched = getpid(), child = fork();
    CHECK(child >= 0);
    if (child > 0) return;
    for (int i = 0; i < SECONDS * 10 && getppid() == watched; i++) usleep(100000);
    if (getppid() == watched) kill(watched, SIGKILL);
    _exit(0);
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    void *(*way)(void *) = ways[atoi(arguments[1])];
    int exits = !strcmp(arguments[2], "exits");
    pthread_attr_t attributes;
    CHECK(pthread_key_create(&key, destructor) == 0);
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0);
    if (exits) grow();
    for (int i = 0; i < 5; i++) batch(way, &attributes);
    size_t before = resident();
    for (int i = 0; i < BATCHES; i++) batch(way, &attributes);
    /* Room for the caches of some batches. A cache has 8 KiB, and its magazines have some more. */
    CHECK(resident() < before + (4 << 20));
    if (exits) {
        watch();
        pthread_exit(NULL);
    }
    return 0;
}
