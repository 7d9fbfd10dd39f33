/* A process that sleeps gives back what it freed, and then nothing wakes in it any more. Argument
   1: who frees. */
#include "purge.h"

static struct block *list;
static pthread_barrier_t turn;
static void *volatile kept;

static void *fill_it(void *unused) {
    list = fill(FILLED);
    return unused;
}

static void *fill_and_wait(void *unused) {
    list = fill(FILLED);
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}

static void *free_and_wait(void *unused) {
    fill_and_empty();
    pthread_barrier_wait(&turn);
    pthread_barrier_wait(&turn);
    return unused;
}

static void own(void) {
    empty(fill(FILLED));
}

static void other(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fill_it, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    empty(list);
}

static void idle_owner(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fill_and_wait, NULL) == 0);
    pthread_barrier_wait(&turn);
    empty(list);
}

static void idle_freer(void) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, free_and_wait, NULL) == 0);
    pthread_barrier_wait(&turn);
}

static void large(void) {
    enum { COUNT = 6, BYTES = 10 * MIB };
    void *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = malloc(BYTES)));
        memset(blocks[i], 0x5a, BYTES);
    }
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

/* Magazines alone serve the last seconds of it, so that no call wakes the thread. */
static void served(void) {
    enum { COUNT = 400, BYTES = 20 * BLOCK, CYCLES = 400, APART_MS = 10 };
    static char *blocks[COUNT];
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        for (int i = 0; i < COUNT; i++) {
            CHECK((blocks[i] = malloc(BYTES)));
            memset(blocks[i], 0x5a, BYTES);
        }
        for (int i = 0; i < COUNT; i++) free(blocks[i]);
        nap(APART_MS);
    }
}

/* The thread sleeps without a time limit when the block shrinks. */
static void shrunk(void) {
    char *block = malloc(FILLED);
    CHECK(block);
    memset(block, 0x5a, FILLED);
    CHECK(until(one_lives) && until(one_is_parked));
    CHECK((kept = realloc(block, MIB)));
}

/* It sleeps when the blocks are freed. */
static void later(void) {
    struct block *blocks = fill(FILLED);
    CHECK(until(one_lives) && until(one_is_parked));
    empty(blocks);
}

static const struct {
    const char *name;
    void (*act)(void);
    int idle; /* threads of the program that stay */
} ways[] = {{"own", own, 0}, {"other", other, 0}, {"idle-owner", idle_owner, 1}, {"idle-freer", idle_freer, 1}, {"large", large, 0}, {"served", served, 0}, {"shrunk", shrunk, 0},
            {"later", later, 0}};

static int others;

/* A thread that was joined may be on its way out still. */
static int no_other_lives(void) {
    return tasks() == 2 + others;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    CHECK(pthread_barrier_init(&turn, NULL, 2) == 0);
    size_t before = resident();
    goal = before + ALLOWANCE;
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (strcmp(ways[way].name, arguments[1])) continue;
        ways[way].act();
        CHECK(until(one_lives));
        CHECK(until(at_goal));
        CHECK(until(one_is_parked));
        others = ways[way].idle;
        CHECK(until(no_other_lives));
        fill_and_empty(); /* and again */
        CHECK(until(at_goal) && until(one_is_parked));
        if (ways[way].idle) pthread_barrier_wait(&turn);
        return 0;
    }
    CHECK(!"a way of this name");
}
