/* The limit on the program's address space becomes lower while it runs, by a call of its own, by a
   system call that no library sees, or by another process. Threads start at once, and the heap goes
   on, below the limit. Meanwhile another thread frees, or none does and the program is idle. */
#include "check.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t limit_bytes = (size_t)512 << 20;
static volatile int over;

static void *churn(void *unused) {
    while (!over) {
        void *blocks[64];
        for (int i = 0; i < 64; i++) blocks[i] = malloc((size_t)(i + 1) << 9);
        for (int i = 0; i < 64; i++) free(blocks[i]);
    }
    return unused;
}

static void *one_block(void *unused) {
    char *block = malloc(1000);
    CHECK(block != NULL);
    memset(block, 1, 1000);
    free(block);
    return unused;
}

static void lower_from_outside(const struct rlimit64 *limit) {
    int status;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(syscall(SYS_prlimit64, getppid(), RLIMIT_AS, limit, NULL) != 0);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void lower(const char *how) {
    struct rlimit limit = {limit_bytes, RLIM_INFINITY};
    struct rlimit64 limit64 = {limit_bytes, RLIM64_INFINITY};
    if (!strcmp(how, "setrlimit")) CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    else if (!strcmp(how, "setrlimit64")) CHECK(setrlimit64(RLIMIT_AS, &limit64) == 0);
    else if (!strcmp(how, "prlimit")) CHECK(prlimit(0, RLIMIT_AS, &limit, NULL) == 0);
    else if (!strcmp(how, "other")) lower_from_outside(&limit64);
    else CHECK(syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit64, NULL) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 3);
    int idle = !strcmp(arguments[2], "idle");
    pthread_t churning, threads[8];
    char *kept = malloc(20 << 20);
    memset(kept, 7, 20 << 20);
    if (!idle) CHECK(pthread_create(&churning, NULL, churn, NULL) == 0);
    lower(arguments[1]);
    for (int i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], NULL, one_block, NULL) == 0);
    for (int i = 0; i < 8; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    void *more[200];
    for (int i = 0; i < 200; i++) {
        more[i] = malloc(1 << 20);
        CHECK(more[i] != NULL);
        memset(more[i], 3, 1 << 20);
    }
    for (int i = 0; i < 200; i++) free(more[i]);
    CHECK(malloc(limit_bytes) == NULL);
    over = 1;
    if (!idle) CHECK(pthread_join(churning, NULL) == 0);
    for (int i = 0; i < 20 << 20; i++) CHECK(kept[i] == 7);
    free(kept);
    CHECK(served_by_neap("malloc"));
    return 0;
}
