/* Threads allocate and free in a sandbox that kills the process for membarrier (its private
   expedited command), nanosleep, clock_nanosleep and sched_yield. Meanwhile the main thread drains
   their magazines. No block is handed out twice. Argument 1: when the process enters the sandbox.
   `alone`: before its threads start. `threads`: after they start. `inherited`: before the program
   starts. */
#include "check.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define KILL_ON(number) \
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

enum { SKIPPED = 77, PRIVATE_EXPEDITED = 1 << 3, THREADS = 3, LIVE = 300, ROUNDS = 20000, VISITS = 200 };

static struct sock_filter rules[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    KILL_ON(SYS_nanosleep),
    KILL_ON(SYS_clock_nanosleep),
    KILL_ON(SYS_sched_yield),
    /* musl registers for membarrier when it starts the first thread. */
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 3),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
    KILL_ON(PRIVATE_EXPEDITED),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
};
static struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};

struct block {
    struct block *self;
    size_t owner;
    char rest[];
};

/* Replaces one of LIVE blocks in each round. Their sizes differ, so they have several classes. */
static void churn(size_t owner, int rounds) {
    static __thread struct block *live[LIVE];
    uint64_t random = owner * 0x9e3779b97f4a7c15u + 1;
    for (int round = 0; round < rounds; round++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        struct block **place = &live[(random >> 33) % LIVE];
        if (*place) CHECK((*place)->self == *place && (*place)->owner == owner);
        free(*place);
        *place = malloc(sizeof(struct block) + (random >> 50) % 500);
        CHECK(*place);
        (*place)->self = *place, (*place)->owner = owner;
    }
    for (int i = 0; i < LIVE; i++) {
        free(live[i]);
        live[i] = NULL;
    }
}

static pthread_barrier_t in_sandbox;
static volatile int done;

static void *late(void *owner) {
    while (!done) churn((size_t)owner, ROUNDS);
    return NULL;
}

static void *early(void *owner) {
    churn((size_t)owner, ROUNDS);
    pthread_barrier_wait(&in_sandbox);
    pthread_barrier_wait(&in_sandbox);
    return late(owner);
}

static void enter(void) {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &filter) == 0)
        return;
    puts("SKIPPED: no filters");
    exit(SKIPPED);
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    int is_early = !strcmp(arguments[1], "threads");
    if (!strcmp(arguments[1], "inherited")) {
        enter();
        execl("/proc/self/exe", arguments[0], "again", NULL);
        CHECK(!"back from exec");
    }
    pthread_t threads[THREADS];
    churn(0, ROUNDS);
    CHECK(pthread_barrier_init(&in_sandbox, NULL, THREADS + 1) == 0);
    if (!strcmp(arguments[1], "alone")) enter();
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, is_early ? early : late, (void *)(i + 1)) == 0);
    if (is_early) {
        pthread_barrier_wait(&in_sandbox);
        enter();
        pthread_barrier_wait(&in_sandbox);
    }
    for (int i = 0; i < VISITS; i++) {
        malloc_trim(0);
        mallinfo2();
        churn(0, 10);
    }
    done = 1;
    for (size_t i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
