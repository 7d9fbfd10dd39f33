/* fork while other threads allocate: every child can allocate at once. */
#include "check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

static atomic_int stop;

static void *churn(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    void *slots[64] = {0};
    while (!stop) {
        state = state * 1103515245 + 12345;
        void **slot = &slots[state >> 16 & 63];
        free(*slot);
        *slot = malloc(state >> 8 & (state & 1 ? 0x3ffff : 0x3ff));
    }
    for (int i = 0; i < 64; i++) free(slots[i]);
    return NULL;
}

static void use_everything(void) {
    for (size_t size = 1; size < 1 << 20; size *= 2) {
        char *block = calloc(1, size);
        CHECK(block && block[0] == 0);
        block = realloc(block, size * 2);
        CHECK(block);
        memset(block, 1, size * 2);
        free(block);
    }
}

static void *use_everything_in_a_thread(void *unused) {
    use_everything();
    return unused;
}

static void child(int generation) {
    pthread_t thread;
    int status;
    use_everything();
    CHECK(pthread_create(&thread, NULL, use_everything_in_a_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    if (generation == 0) _exit(0);
    pid_t grandchild = fork();
    if (grandchild == 0) child(generation - 1);
    CHECK(waitpid(grandchild, &status, 0) == grandchild && status == 0);
    _exit(0);
}

int main(void) {
    enum { THREADS = 3, FORKS = 60 };
    pthread_t threads[THREADS];
    CHECK(served_by_neap("malloc"));
    alarm(240); /* a deadlock ends as SIGALRM */
    void *before = malloc(100);
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < FORKS; i++) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            free(before);
            child(i % 10 == 0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
        use_everything();
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    free(before);
    return 0;
}
