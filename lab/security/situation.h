/* What both programs share: one wrong step a process, and what it allowed.

   PROGRAM KIND SIZE

   A program first tells which file has its malloc, and writes "step" just before the wrong step.
   A process that a signal ends after that was stopped. Any other goes on, looks at what the step
   allows, and says so on standard output. */
#ifndef SITUATION_H
#define SITUATION_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* How a process ends that no signal ended. Anything else: it did not come to the wrong step. */
enum { HARM = 0, PREVENTED = 10, UNNOTICED = 11, NOT_SET_UP = 20 };

/* Past the compiler, which would otherwise remove what is undefined. */
static void *(*volatile allocate)(size_t) = malloc;
static void *(*volatile allocate_zeroed)(size_t, size_t) = calloc;
static void *(*volatile resize)(void *, size_t) = realloc;
static void (*volatile give_back)(void *) = free;
static void *(*volatile copy)(void *, const void *, size_t) = memcpy;

static void say(const char *text) {
    if (write(1, text, strlen(text)) < 0) _exit(NOT_SET_UP);
}

static void step(void) { say("step\n"); }

static void end(int how, const char *what) {
    say(how == HARM ? "harm: " : how == PREVENTED ? "prevented: " : "unnoticed: ");
    say(what);
    say("\n");
    _exit(how);
}

static char *obtain(size_t size) {
    char *block = (char *)allocate(size);
    if (!block) _exit(NOT_SET_UP);
    return block;
}

/* Blocks that are in use, and places that no allocator may hand out. */
enum { MOST_IN_USE = 1100 };
static char *in_use[MOST_IN_USE];
static size_t in_use_bytes[MOST_IN_USE];
static int in_use_count;

static int overlaps_one_in_use(const char *block, size_t size) {
    for (int i = 0; i < in_use_count; i++)
        if (block < in_use[i] + in_use_bytes[i] && in_use[i] < block + size) return 1;
    return 0;
}

static void note_in_use(char *block, size_t size) {
    in_use[in_use_count] = block;
    in_use_bytes[in_use_count++] = size;
}

/* Allocates until two owners share memory, and ends the process either way. */
static void look_for_two_owners(size_t size) {
    int count = size > 65536 ? 64 : 1000;
    for (int i = 0; i < count; i++) {
        char *block = obtain(size);
        if (overlaps_one_in_use(block, size)) end(HARM, "memory in use was handed out again");
        note_in_use(block, size);
    }
    end(UNNOTICED, "the call returned, and no memory has two owners");
}

/* Says whose malloc it is, and leaves no core file. */
static void begin(void) {
    struct rlimit none = {0, 0};
    Dl_info heap;
    setrlimit(RLIMIT_CORE, &none);
    if (!dladdr(dlsym(RTLD_DEFAULT, "malloc"), &heap)) _exit(NOT_SET_UP);
    say("heap=");
    say(heap.dli_fname);
    say("\n");
}
#endif
