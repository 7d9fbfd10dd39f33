/* Coroutines by ucontext, and one that uses up its stack. */
#include "check.h"
#include "../../include/neap.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

static ucontext_t outside, inside;

static __attribute__((noinline)) int dive(volatile char *above) {
    volatile char local[512];
    local[0] = above[0];
    return dive(local) + local[0];
}

static void endless(void) {
    volatile char start[1] = {1};
    dive(start);
}

/* Runs `body` on a stack of 64 KiB. */
static void run(void (*body)(void), const char *owner) {
    neap_stack_t stack;
    CHECK(neap_stack_alloc(64 << 10, &stack) == 0);
    if (owner) neap_stack_set_owner(&stack, owner);
    CHECK(getcontext(&inside) == 0);
    inside.uc_stack.ss_sp = stack.limit;
    inside.uc_stack.ss_size = stack.bytes;
    inside.uc_link = &outside;
    makecontext(&inside, body, 0);
    CHECK(swapcontext(&outside, &inside) == 0);
    neap_stack_free(&stack);
}
