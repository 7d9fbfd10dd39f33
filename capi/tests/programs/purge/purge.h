/* What the programs about the purge share: memory that is filled and freed, and looks at this
   process that allocate nothing and wake nothing. */
#ifndef PURGE_H
#define PURGE_H

#include "resident.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

enum { SKIPPED = 77, MIB = 1 << 20, BLOCK = 1024 };

/* What may stay resident of 64 MiB: magazines, warm slabs, the floor below which nobody purges,
   the kernel's own tolerance in counting. */
enum { ALLOWANCE = 6 * MIB, FILLED = 64 * MIB };

/* How long something may take on a machine with more to do than this. */
enum { PATIENCE_MS = 30000 };

__attribute__((noreturn, unused)) static void skip(const char *why) {
    dprintf(1, "SKIPPED: %s: %s\n", why, strerror(errno));
    _exit(SKIPPED);
}

__attribute__((unused)) static void nap(long milliseconds) {
    struct timespec rest = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    while (nanosleep(&rest, &rest) != 0) CHECK(errno == EINTR);
}

/* Calls `visit` with every task of this process; opendir would allocate. Counts those it is true
   for. */
static inline int count_tasks(int (*visit)(int task)) {
    char entries[4096];
    int count = 0;
    int folder = open("/proc/self/task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    CHECK(folder >= 0);
    for (;;) {
        long length = syscall(SYS_getdents64, folder, entries, sizeof entries);
        CHECK(length >= 0);
        if (length == 0) break;
        for (long at = 0; at < length;) {
            unsigned short size;
            const char *name = entries + at + 19; /* after inode, offset, length and type */
            memcpy(&size, entries + at + 16, sizeof size);
            at += size;
            if (*name != '.') count += visit(atoi(name)) != 0;
        }
    }
    close(folder);
    return count;
}

static inline int any_task(int task) {
    return task > 0;
}

static inline int is_purge_thread(int task) {
    char path[64], name[32];
    snprintf(path, sizeof path, "/proc/self/task/%d/comm", task);
    return read_file(path, name, sizeof name) > 0 && !strcmp(name, "neap-purge\n");
}

/* Asleep on a futex without a time limit: nothing wakes it but a ring. */
static inline int is_parked(int task) {
    char path[64], text[256];
    unsigned long call, word, operation, value, limit;
    if (!is_purge_thread(task)) return 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", task);
    if (read_file(path, text, sizeof text) <= 0) return 0;
    return sscanf(text, "%lu %lx %lx %lx %lx", &call, &word, &operation, &value, &limit) == 5 && call == SYS_futex && limit == 0;
}

/* In a wait for a futex: it holds no lock, unless it waits for one. */
static inline int is_asleep(int task) {
    char path[64], text[256];
    unsigned long call;
    if (!is_purge_thread(task)) return 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", task);
    if (read_file(path, text, sizeof text) <= 0) return 0;
    return sscanf(text, "%lu", &call) == 1 && call == SYS_futex;
}

static inline int tasks(void) {
    return count_tasks(any_task);
}

static inline int purge_threads(void) {
    return count_tasks(is_purge_thread);
}

static long switches;

/* Adds up how often the purge thread went to sleep. */
static inline int count_switches(int task) {
    char path[64], text[4096];
    if (!is_purge_thread(task)) return 0;
    snprintf(path, sizeof path, "/proc/self/task/%d/status", task);
    CHECK(read_file(path, text, sizeof text) > 0);
    const char *line = strstr(text, "\nvoluntary_ctxt_switches:");
    CHECK(line != NULL);
    switches += strtol(strchr(line, ':') + 1, NULL, 10);
    return 1;
}

/* How often the purge thread has gone to sleep. */
static inline long switches_so_far(void) {
    switches = 0;
    CHECK(count_tasks(count_switches) == 1);
    return switches;
}

/* Waits until `condition` holds; false when it takes longer than anybody's patience. */
static inline int until(int (*condition)(void)) {
    for (int waited = 0; waited < PATIENCE_MS; waited += 5) {
        if (condition()) return 1;
        nap(5);
    }
    return condition();
}

static inline int one_lives(void) {
    return purge_threads() == 1;
}

static inline int one_sleeps(void) {
    return count_tasks(is_asleep) == 1;
}

static inline int one_is_parked(void) {
    return count_tasks(is_parked) == 1;
}

static inline int none_lives(void) {
    return purge_threads() == 0;
}

struct block {
    struct block *next;
};

/* `bytes` in touched blocks of 1 KiB, a list. Volatile: the compiler must not remove what nobody
   reads. */
static inline struct block *fill(size_t bytes) {
    struct block *list = NULL;
    for (size_t at = 0; at < bytes; at += BLOCK) {
        struct block *block = malloc(BLOCK);
        CHECK(block);
        memset(block, 0x5a, BLOCK);
        block->next = list;
        list = block;
    }
    return list;
}

static inline void empty(struct block *list) {
    while (list) {
        struct block *next = list->next;
        free(list);
        list = next;
    }
}

static inline void fill_and_empty(void) {
    empty(fill(FILLED));
}

/* Fills, frees, and waits for the thread that will give the pages back. */
__attribute__((unused)) static void with_purge_thread(void) {
    CHECK(served_by_neap("malloc"));
    fill_and_empty();
    CHECK(until(one_lives));
}

/* What is resident when the purge is done. */
static size_t goal;

static inline int at_goal(void) {
    return resident() <= goal;
}

static inline void ended_well(pid_t pid) {
    int status = -1;
    CHECK(pid > 0);
    while (waitpid(pid, &status, 0) != pid) CHECK(errno == EINTR);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

#endif
