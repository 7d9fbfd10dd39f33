// The status page and other descriptors of the process, as another process would read them.
#pragma once
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONTROL = 512 / 8, SERVED = 1024 / 8, ARENAS = 1280, FIGURES = 4096 / 8 + 1, BYTES = 192 << 10 };
enum { ASK = CONTROL, LEASE, INTERVAL, PURGE, SAMPLE, RATE, GUARD, GUARD_INTERVAL, BELL };
enum { SERVED_PURGE = SERVED + 1, THREAD = SERVED + 13 };
enum { HERE = 1 };

static void fail(const char *what) {
    fprintf(stderr, "FAILED: %s (%s)\n", what, strerror(errno));
    _exit(1);
}

#define CHECK(condition) ((condition) ? (void)0 : fail(#condition))

// The one descriptor whose file has this name; -1 if there is none; fails if there are more.
static int descriptor_of(const char *name) {
    int found = -1;
    for (int number = 3; number < 1024; number++) {
        char path[64], target[256];
        snprintf(path, sizeof path, "/proc/self/fd/%d", number);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length <= 0)
            continue;
        target[length] = 0;
        if (strstr(target, name)) {
            CHECK(found == -1);
            found = number;
        }
    }
    return found;
}

static uint64_t word_of(int descriptor, long offset) {
    uint64_t word;
    CHECK(pread(descriptor, &word, 8, offset) == 8);
    return word;
}

static _Atomic uint64_t *status_page(void) {
    int descriptor = descriptor_of("neap-status");
    CHECK(descriptor >= 0);
    void *base = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    CHECK(base != MAP_FAILED);
    return base;
}

static void present(void) {
    int descriptor = descriptor_of("neap-status");
    CHECK(descriptor >= 0);
    CHECK(memcmp((uint64_t[]){word_of(descriptor, 0)}, "NeapBord", 8) == 0);
    CHECK(word_of(descriptor, 24) == (uint64_t)getpid());
    CHECK(word_of(descriptor, 40) == 1);
    // Where the heap is: a program that allocates next to nothing has one arena, too.
    free(malloc(1));
    CHECK(word_of(descriptor, ARENAS) == 1);
    CHECK(word_of(descriptor, ARENAS + 8) != 0 && word_of(descriptor, ARENAS + 16) >= 1 << 20);
    int seals = fcntl(descriptor, F_GET_SEALS);
    CHECK(seals >= 0 && (seals & F_SEAL_SHRINK) && (seals & F_SEAL_GROW));
    CHECK(fcntl(descriptor, F_GETFD) & FD_CLOEXEC);
    CHECK(ftruncate(descriptor, 0) == -1);
}
