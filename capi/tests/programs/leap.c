/* A coroutine near the end of its stack calls a function with a large frame and no stack probes.
   The arguments are the stack's size in bytes, and the frame's or "stderr". The stacks beside it
   stay as they are, whatever it does. */
#include "overflow.h"

enum { STACKS = 8, LEAPING = 4, NEAR = 256 };

static neap_stack_t stacks[STACKS];
static void (*leap)(void);

/* Only the lowest byte of the frame is written. */
#define LEAP(frame)                                                \
    static __attribute__((noinline)) void leap_##frame(void) {     \
        volatile char local[frame];                                \
        local[0] = 1;                                              \
    }
LEAP(8216)
LEAP(16400)
LEAP(33312)

static void leap_to_stderr(void) { fprintf(stderr, "from %d coroutine\n", 1); }

/* Calls the function where fewer than NEAR bytes and a frame of this one are left. */
static __attribute__((noinline)) int descend(volatile char *above) {
    volatile char local[64];
    local[0] = above[0];
    if (local - (char *)stacks[LEAPING].limit < NEAR + 128) {
        leap();
        return local[0];
    }
    return descend(local) + local[0];
}

static void body(void) {
    volatile char start[1] = {1};
    descend(start);
}

int main(int argc, char **argv) {
    CHECK(argc == 3);
    size_t bytes = strtoul(argv[1], NULL, 10);
    leap = !strcmp(argv[2], "8216")    ? leap_8216
           : !strcmp(argv[2], "16400") ? leap_16400
           : !strcmp(argv[2], "33312") ? leap_33312
                                       : leap_to_stderr;
    CHECK(neap_stack_report_overflows() == 1);
    /* Binds the name: the loader needs more of a stack than is left. */
    CHECK(fprintf(stderr, "%s", "") == 0);
    for (int i = 0; i < STACKS; i++) {
        CHECK(neap_stack_alloc(bytes, &stacks[i]) == 0);
        memset(stacks[i].limit, 'A' + i, stacks[i].bytes);
    }
    neap_stack_set_owner(&stacks[LEAPING], "leaping");
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stacks[LEAPING].limit;
    inside.uc_stack.ss_size = stacks[LEAPING].bytes;
    inside.uc_link = &outside;
    makecontext(&inside, body, 0);
    CHECK(swapcontext(&outside, &inside) == 0);
    for (int i = 0; i < STACKS; i++)
        for (size_t at = 0; i != LEAPING && at < stacks[i].bytes; at++)
            CHECK(((char *)stacks[i].limit)[at] == 'A' + i);
    CHECK(!"the end of the stack stopped it");
}
