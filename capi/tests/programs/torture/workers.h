/* The rounds of a thread, and the children it starts. */
#ifndef WORKERS_H
#define WORKERS_H

#include "parting.h"
#include <malloc.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { SLOTS = 24, SHARED = 32, GENERATIONS = 2, CHILD_SECONDS = 120 };

struct worker {
    uint64_t state;
    int generation; /* 0, and one more in each child */
    struct block *slots[SLOTS];
};

/* Where blocks change hands. */
static _Atomic(struct block *) shared[SHARED];

/* What a mode does between rounds, and whether a child may exec. */
static void (*attack)(struct worker *);
static int may_exec = 1;

static void rounds(struct worker *worker, unsigned long share);

static void verify_all(struct worker *worker) {
    for (int i = 0; i < SLOTS; i++)
        if (worker->slots[i]) verify(worker->slots[i]);
}

static void await(pid_t pid, const char *kind) {
    int status = -1;
    atomic_fetch_add(&totals->children, 1);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
    if (status == 0) return;
    dprintf(2, "torture: a child made by %s ended with status 0x%x, seed %lu\n", kind, status,
            options.seed);
    abort();
}

/* The child has compared what the blocks held when it was made, and left the pages as they were. */
static void all_checked(struct worker *worker) {
    for (int i = 0; i < SLOTS; i++)
        if (worker->slots[i]) worker->slots[i]->checked = 1;
}

/* Blocks that are dirty here and were not where the child came from, zeroed again. */
static void soil_and_zero(struct worker *worker) {
    uint64_t *state = &worker->state;
    for (int i = 0; i < 4; i++) {
        size_t size = spread(state, 256 << 10, 4 << 20);
        char *soiled = malloc(size);
        if (soiled) memset(soiled, 0x6b, size);
        free(soiled);
        struct block *block = take(state, size, ZERO);
        if (block) give_back(block, state);
    }
}

/* In a child with an address space of its own: the blocks it inherited, then rounds of its own. */
__attribute__((noreturn)) static void live_on(struct worker *worker, unsigned long share) {
    alarm(CHILD_SECONDS);
    pthread_mutex_init(&descriptors, NULL);
    worker->generation++;
    worker->state ^= 0x6368696c64;
    if (share > 0) soil_and_zero(worker);
    rounds(worker, share);
    verify_all(worker);
    _exit(0);
}

static void forked(struct worker *worker) {
    int reads = one_in(&worker->state, 2);
    pid_t pid = fork();
    if (pid < 0) return;
    if (pid == 0) {
        if (reads) verify_all(worker);
        live_on(worker, 1 + below(&worker->state, 30));
    }
    await(pid, "fork");
    if (reads) all_checked(worker);
}

/* Whether no other thread can be inside malloc: none of the program's own, nor the library's. */
static int is_alone(void) {
    const char *purge_thread = getenv("NEAP_PURGE_THREAD");
    return options.threads == 1 && purge_thread && (!strcmp(purge_thread, "0") || !strcmp(purge_thread, "never"));
}

/* Runs no fork handler: it may allocate only where locks cannot have been somebody else's. */
static void cloned(struct worker *worker) {
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid < 0) return;
    if (pid == 0) {
        verify_all(worker);
        live_on(worker, is_alone() ? 1 + below(&worker->state, 30) : 0);
    }
    await(pid, "clone");
    all_checked(worker);
}

/* In a child that shares the memory but not the descriptors: large blocks, dirtied and zeroed. */
static void borrow(struct worker *worker) {
    for (int i = 0; i < 3; i++) {
        struct block *block = take(&worker->state, spread(&worker->state, 65536, 2 << 20), ZERO);
        if (block) give_back(block, &worker->state);
    }
}

static int borrower(void *worker) {
    borrow(worker);
    _exit(0);
}

__attribute__((noinline)) static pid_t start_vforked(struct worker *worker) {
    static char *const command[] = {"/bin/true", NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        borrow(worker);
        if (may_exec && worker->state % 2) execv(command[0], command);
        _exit(0);
    }
    return pid;
}

static void vforked(struct worker *worker) {
    pid_t pid = start_vforked(worker);
    if (pid > 0) await(pid, "vfork");
}

static void cloned_vm(struct worker *worker) {
    size_t bytes = 256 << 10;
    char *stack = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return;
    pid_t pid = clone(borrower, stack + bytes, CLONE_VM | CLONE_VFORK | SIGCHLD, worker);
    if (pid > 0) await(pid, "clone with CLONE_VM");
    munmap(stack, bytes);
}

static void start_child(struct worker *worker) {
    static void (*const kinds[])(struct worker *) = {forked, forked, cloned, vforked, cloned_vm};
    if (options.no_children || worker->generation == GENERATIONS) return;
    /* Pages that are given back here are ones that a stale answer calls untouched. */
    if (one_in(&worker->state, 2)) malloc_trim(0);
    kinds[below(&worker->state, 5)](worker);
}

static void fill(struct worker *worker, struct block **slot, size_t size) {
    enum rest rest = one_in(&worker->state, 3) ? UNKNOWN : ZERO;
    *slot = take(&worker->state, size, rest);
}

/* The same size again at once: the freed block is the best fit. */
static void refill(struct worker *worker, struct block **slot) {
    size_t size = (*slot)->size;
    give_back(*slot, &worker->state);
    *slot = NULL;
    fill(worker, slot, size);
}

static void change_size(struct worker *worker, struct block *block) {
    uint64_t *state = &worker->state;
    /* Near 256 KiB, where realloc begins to move pages, as often as anywhere. */
    size_t size = one_in(state, 2) ? (192 << 10) + below(state, 128 << 10)
                  : one_in(state, 2) ? 1 + block->size / (1 + below(state, 4))
                                     : block->size + below(state, block->size + 1);
    if (live + size <= options.max_bytes || size < block->size) resize(block, size, state);
}

static void one_round(struct worker *worker) {
    uint64_t *state = &worker->state, chance = below(state, 1000);
    struct block **slot = &worker->slots[below(state, SLOTS)];
    if (attack && one_in(state, 25)) attack(worker);
    if (chance < 4) {
        start_child(worker);
    } else if (chance < 9) {
        malloc_trim(0);
    } else if (!*slot) {
        fill(worker, slot, choose_size(state));
    } else if (chance < 500) {
        give_back(*slot, state);
        *slot = NULL;
    } else if (chance < 750) {
        refill(worker, slot);
    } else if (chance < 880) {
        change_size(worker, *slot);
    } else if (chance < 980) {
        *slot = atomic_exchange(&shared[below(state, SHARED)], *slot);
    } else {
        verify(*slot);
    }
}

/* Rounds until `share` are done, or all that were asked for have been. */
static void rounds(struct worker *worker, unsigned long share) {
    while (share-- > 0 && atomic_fetch_add(&totals->rounds, 1) < options.rounds)
        one_round(worker);
}

#endif
