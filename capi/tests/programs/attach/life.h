// Processes that come to a status page, and their children.
#pragma once
#include "page.h"

static void hidden(void) { CHECK(descriptor_of("neap-status") == -1); }

static int has_status_page(void) { return descriptor_of("neap-status") >= 0; }

// By two megabytes, with few calls.
static void grows(void) {
    CHECK(!has_status_page());
    for (int i = 0; i < 32; i++)
        CHECK(malloc(64 << 10));
    CHECK(has_status_page());
    present();
}

// By nothing, with many calls that the fast path cannot serve.
static void works(void) {
    CHECK(!has_status_page());
    for (int i = 0; i < 300; i++)
        free(malloc(100 << 10));
    CHECK(has_status_page());
    present();
}

// The child's counts begin anew, and the parent's status_page is not its own.
static void forks_early(void) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(malloc(100 << 10));
        CHECK(!has_status_page());
        grows();
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    works();
    child = fork();
    if (child == 0) {
        for (int i = 0; i < 300; i++)
            free(malloc(100 << 10));
        present();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void child_has_its_own(int generations) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        present();
        int profile = descriptor_of("neap-profile");
        CHECK(profile >= 0 && word_of(profile, 24) == (uint64_t)getpid());
        // It samples on, since now.
        CHECK(word_of(profile, 32) == 64 << 10 && word_of(profile, 72) != 0 && word_of(profile, 80) != 0);
        if (generations > 1)
            child_has_its_own(generations - 1);
        free(malloc(100000));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    present();
}

// What the parent purged before the fork is not the child's.
static void child_purged_nothing(void) {
    enum { PURGED = 2048 + 16 * 8, BLOCK = 8 << 20 };
    void *block = malloc(BLOCK);
    CHECK(block && memset(block, 1, BLOCK));
    free(block);
    malloc_trim(0);
    CHECK(word_of(descriptor_of("neap-status"), PURGED) >= BLOCK);
    CHECK(!malloc((uintptr_t)1 << 50));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(malloc(100 << 10));
        present();
        CHECK(word_of(descriptor_of("neap-status"), PURGED) < BLOCK);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(word_of(descriptor_of("neap-status"), PURGED) >= BLOCK);
}

static void exec_again(char **arguments) {
    if (getenv("SECOND")) {
        present();
        return;
    }
    setenv("SECOND", "1", 1);
    execv("/proc/self/exe", arguments);
    fail("exec");
}

// What the child of vfork does to the heap is done to its parent's, but the status_page stays its
// parent's.
static void vforked(void) {
    int descriptor = descriptor_of("neap-status");
    _Atomic uint64_t *words = status_page();
    words[ASK] = 7;
    pid_t child = vfork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 20000; i++)
            free(malloc(100 + i % 5000));
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(word_of(descriptor, 24) == (uint64_t)getpid());
}
