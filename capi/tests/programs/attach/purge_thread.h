// The purge thread answers, and sleeps.
#pragma once
#include "work.h"

// As an observer does when it has written what it asks for.
static void ring(_Atomic uint64_t *words) {
    __atomic_fetch_add((uint32_t *)&words[BELL], 1, __ATOMIC_SEQ_CST);
    syscall(SYS_futex, &words[BELL], FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

// Asks, and waits up to 200 s for the answer. On a machine that ran two builds, 30 s were once not
// enough.
static void is_answered(_Atomic uint64_t *words, uint64_t asked) {
    words[ASK] = asked;
    ring(words);
    for (int i = 0; i < 400000 && words[SERVED] != asked; i++)
        usleep(500);
    CHECK(words[SERVED] == asked);
}

// How often the task gave up its processor by itself; -1 if it is not the purge thread.
static long switches(const char *task) {
    char path[64], text[4096];
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return -1;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length < 0 ? 0 : length] = 0;
    const char *line = strstr(text, "\nvoluntary_ctxt_switches:\t");
    return line && strstr(text, "neap-purge\n") ? atol(strchr(line, '\t')) : -1;
}

// The purge thread's switches; -1 while it is not there.
static long purge_switches(void) {
    DIR *tasks = opendir("/proc/self/task");
    CHECK(tasks);
    long found = -1;
    for (struct dirent *entry; (entry = readdir(tasks));)
        if (switches(entry->d_name) >= 0)
            found = switches(entry->d_name);
    closedir(tasks);
    return found;
}

// Waits until the thread sleeps until it is rung: it has not moved for longer than it ever dozes.
static void rests(void) {
    long before = -1;
    for (int i = 0; i < 30 && (before < 0 || before != purge_switches()); i++) {
        before = purge_switches();
        usleep(1500000);
    }
    CHECK(before >= 0 && before == purge_switches());
}

// More than from which on a process has the thread.
static void grow(void) {
    for (int i = 0; i < 2048; i++)
        CHECK(memset(malloc(4000), 1, 4000));
}

// A small program has no thread, and so no answer while it sleeps.
static void small(void) {
    _Atomic uint64_t *words = status_page();
    words[ASK] = 7;
    ring(words);
    usleep(300000);
    CHECK(words[SERVED] != 7 && words[THREAD] != HERE && purge_switches() < 0);
}

// A program that sleeps answers each time, and nothing wakes in it in between.
static void idle(void) {
    _Atomic uint64_t *words = status_page();
    grow();
    rests();
    CHECK(words[THREAD] == HERE);
    for (uint64_t asked = 1; asked <= 200; asked++)
        is_answered(words, asked);
    rests();
    words[PURGE] = 5;
    ring(words);
    for (int i = 0; i < 60000 && words[SERVED_PURGE] != 5; i++)
        usleep(500);
    CHECK(words[SERVED_PURGE] == 5);
}

// A program that is always busy, but only with what the fast paths serve, answers, too.
static void *fast_paths(void *unused) {
    while (!done) {
        void *volatile small = malloc(64);
        free(small);
    }
    return unused;
}

static void busy(void) {
    _Atomic uint64_t *words = status_page();
    pthread_t thread;
    grow();
    CHECK(pthread_create(&thread, 0, fast_paths, 0) == 0);
    for (uint64_t asked = 1; asked <= 50; asked++)
        is_answered(words, asked);
    done = 1;
    CHECK(pthread_join(thread, 0) == 0);
}

// Who rings without an end, for nothing, wakes the thread some times a second; and an observer is
// answered meanwhile.
static void *ring_in_vain(void *words) {
    while (!done)
        ring(words);
    return 0;
}

static void rung_in_vain(void) {
    _Atomic uint64_t *words = status_page();
    pthread_t thread;
    grow();
    rests();
    long before = purge_switches();
    CHECK(pthread_create(&thread, 0, ring_in_vain, words) == 0);
    sleep(3);
    long woken = purge_switches() - before;
    if (woken > 600) {
        fprintf(stderr, "woken %ld times in 3 s\n", woken);
        fail("rounds are bounded");
    }
    for (uint64_t asked = 1; asked <= 5; asked++)
        is_answered(words, asked);
    done = 1;
    CHECK(pthread_join(thread, 0) == 0);
    rests();
}

// Calls what the fast paths serve, or nothing at all: is it answered?
static void quiet(void) {
    _Atomic uint64_t *words = status_page();
    for (int nap = 0; nap < 2; nap++) {
        uint64_t asked = 7 + nap;
        // Long enough that a thread which does not stay has ended.
        sleep(3);
        words[ASK] = asked;
        ring(words);
        for (int i = 0; i < 200000 && words[SERVED] != asked; i++) {
            void *volatile small = nap ? NULL : malloc(64);
            free(small);
            usleep(1000);
        }
        CHECK(words[SERVED] == asked);
    }
}

static void quiet_child(void) {
    quiet();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // The thread of a child of fork is started by the first free on a slow path.
        void *volatile large = malloc(1 << 20);
        free(large);
        quiet();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}
