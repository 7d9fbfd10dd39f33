/* What every test program starts with: checks that do not depend on NDEBUG,
   and proof that the library under test is the one that serves malloc. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static inline void check_failed(const char *file, int line, const char *condition) {
    dprintf(2, "%s:%d: not so: %s\n", file, line, condition);
    _exit(1);
}

/* An expression, so that it may stand after a comma. */
#define CHECK(condition) \
    ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition))

/* The library's lines in /proc/self/maps include the address of `name`. */
static inline int served_by_neap(const char *name) {
    const char *library = getenv("LIBRARY_UNDER_TEST");
    uintptr_t symbol = (uintptr_t)dlsym(RTLD_DEFAULT, name);
    FILE *maps = fopen("/proc/self/maps", "re");
    char line[PATH_MAX + 128];
    int found = 0;
    CHECK(library != NULL && maps != NULL && symbol != 0);
    while (fgets(line, sizeof line, maps)) {
        unsigned long low, high;
        line[strcspn(line, "\n")] = 0;
        const char *path = strchr(line, '/');
        if (path && !strcmp(path, library) && sscanf(line, "%lx-%lx", &low, &high) == 2)
            found |= low <= symbol && symbol < high;
    }
    fclose(maps);
    return found;
}

/* execv of a program like this one, at the path arguments[0]. Under qemu-user only the emulator
   starts another machine's program; it gives the library to its guest and must not be preloaded
   itself. */
static inline void exec_alike(char *const arguments[]) {
    const char *emulator = getenv("EMULATOR_UNDER_TEST");
    if (!emulator) {
        execv(arguments[0], arguments);
        return;
    }
    char *all[8] = {(char *)emulator};
    for (int i = 0; i < 6 && arguments[i]; i++)
        all[i + 1] = arguments[i];
    unsetenv("LD_PRELOAD");
    execvp(emulator, all);
}

static inline int multiple_of(const void *block, size_t align) {
    return (uintptr_t)block % align == 0;
}

/* A runtime value: the compiler cannot judge sizes and alignments made with it. */
static inline size_t hidden(size_t value) {
    static volatile size_t zero;
    return value + zero;
}

#endif
