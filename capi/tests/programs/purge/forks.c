/* Forks while the purge thread lives. Argument 1: generations, storm, handlers or daemon. */
#include "purge.h"
#include <semaphore.h>
#include <stdatomic.h>

static atomic_int stop;

/* A child has one task, whatever its parent had, and purges as its parent does. */
static void generation(int left) {
    pid_t pid = fork();
    if (pid == 0) {
        CHECK(tasks() == 1);
        with_purge_thread();
        if (left > 0) generation(left - 1);
        CHECK(until(at_goal) && until(one_is_parked));
        CHECK(tasks() == 2);
        exit(0);
    }
    ended_well(pid);
}

static void generations(void) {
    goal = resident() + ALLOWANCE;
    with_purge_thread();
    generation(2);
    CHECK(until(at_goal) && until(one_is_parked));
}

static void *free_much(void *unused) {
    while (!stop) fill_and_empty();
    return unused;
}

static void storm(void) {
    enum { THREADS = 2, FORKS = 100 };
    pthread_t ids[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, free_much, NULL) == 0);
    CHECK(until(one_lives));
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK(tasks() == 1);
            empty(fill(i % 10 ? BLOCK : 16 * MIB));
            exit(0);
        }
        ended_well(pid);
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
}

static void handlers(void) {
    CHECK(pthread_atfork(fill_and_empty, fill_and_empty, fill_and_empty) == 0);
    with_purge_thread();
    for (int i = 0; i < 8; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            fill_and_empty();
            exit(0);
        }
        fill_and_empty();
        ended_well(pid);
    }
}

static _Thread_local int waits;
static sem_t waiting;

static void wait_in_fork(void) {
    if (waits) {
        sem_post(&waiting);
        for (;;) pause();
    }
}

static void *fork_slowly(void *unused) {
    waits = 1;
    fork();
    return unused;
}

/* The C library forks for `daemon`, while another thread is within a fork that does not end. */
static void daemon_beside_a_fork(void) {
    int ends[2];
    char started = 0;
    CHECK(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t thread;
        CHECK(sem_init(&waiting, 0, 0) == 0 && pthread_atfork(wait_in_fork, NULL, NULL) == 0);
        CHECK(pthread_create(&thread, NULL, fork_slowly, NULL) == 0 && sem_wait(&waiting) == 0);
        CHECK(daemon(1, 1) == 0);
        alarm(240);
        with_purge_thread();
        started = 1;
        CHECK(write(ends[1], &started, 1) == 1);
        _exit(0);
    }
    ended_well(pid);
    close(ends[1]);
    CHECK(read(ends[0], &started, 1) == 1 && started == 1);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    alarm(240); /* a deadlock ends as SIGALRM */
    if (!strcmp(arguments[1], "generations")) return generations(), 0;
    if (!strcmp(arguments[1], "storm")) return storm(), 0;
    if (!strcmp(arguments[1], "daemon")) return daemon_beside_a_fork(), 0;
    CHECK(!strcmp(arguments[1], "handlers"));
    return handlers(), 0;
}
