/* Children of every kind while other threads allocate: fork, with threads of its own; vfork;
   posix_spawn; a raw clone, which runs no fork handler and does not allocate. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <sys/wait.h>

extern char **environ;
static atomic_int stop;

static void *churn(void *seed) {
    unsigned state = (unsigned)(uintptr_t)seed;
    void *slots[64] = {0};
    while (!stop) {
        state = state * 1103515245 + 12345;
        void **slot = &slots[state >> 16 & 63];
        free(*slot);
        *slot = malloc(state >> 8 & 0x3fff);
    }
    for (int i = 0; i < 64; i++) free(slots[i]);
    return NULL;
}

static void *some(void *unused) {
    void *blocks[200];
    for (int i = 0; i < 200; i++) CHECK((blocks[i] = malloc(i * 20 + 1)));
    for (int i = 0; i < 200; i++) free(blocks[i]);
    return unused;
}

static void ended_well(pid_t pid) {
    int status = -1;
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 0);
}

static void forked(void) {
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t ids[4];
        some(NULL);
        for (int i = 0; i < 4; i++) CHECK(pthread_create(&ids[i], NULL, some, NULL) == 0);
        for (int i = 0; i < 4; i++) CHECK(pthread_join(ids[i], NULL) == 0);
        exit(0);
    }
    ended_well(pid);
}

static void vforked(void) {
    char *const command[] = {"/bin/true", NULL};
    pid_t pid = vfork();
    if (pid == 0) {
        execv(command[0], command);
        _exit(127);
    }
    ended_well(pid);
}

static void spawned(void) {
    char *const command[] = {"/bin/true", NULL};
    pid_t pid;
    CHECK(posix_spawn(&pid, command[0], NULL, NULL, command, environ) == 0);
    ended_well(pid);
}

static void cloned(void) {
    pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
    if (pid == 0) syscall(SYS_exit_group, 0);
    ended_well(pid);
}

int main(void) {
    enum { THREADS = 3, ROUNDS = 100 };
    pthread_t ids[THREADS];
    CHECK(served_by_neap("malloc"));
    alarm(240); /* a deadlock ends as SIGALRM */
    for (uintptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&ids[i], NULL, churn, (void *)(i + 1)) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        void (*const kinds[])(void) = {forked, vforked, spawned, cloned};
        kinds[i % 4]();
        some(NULL);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(ids[i], NULL);
    return 0;
}
