/* A block that is free or was never handed out, which a magazine or a slab holds, and what is done
   to it: each pair of arguments is a case. No argument is the first one. */
#include "misuse.h"
#include <pthread.h>
#include <string.h>

/* With a canary, blocks of 64 bytes: 1,024 to a slab. */
#define SIZE 56
#define SLAB ((uintptr_t)65536)

static char *block;
static pthread_barrier_t both;

/* Frees the block, and enough of another class that it leaves the quarantine. */
static void free_long_ago(void) {
    free(block);
    for (int i = 0; i < 9000; i++) free(malloc(100));
}

static void *other(void *unused) {
    free_long_ago();
    pthread_barrier_wait(&both);
    pause();
    return unused;
}

/* Another block of the slab, which is in no block of the program: its first or its last one. */
static char *unused_block(int is_last) {
    uintptr_t at = (uintptr_t)block / SLAB * SLAB;
    at += is_last ? SLAB - 64 : 0;
    return at == (uintptr_t)block ? (char *)(is_last ? at - 64 : at + 64) : (char *)at;
}

int main(int argc, char **argv) {
    const char *which = argc > 1 ? argv[1] : "own";
    const char *how = argc > 2 ? argv[2] : "free";
    block = (char *)malloc(SIZE);
    if (!block) _exit(3);
    if (!strcmp(which, "own")) {
        free_long_ago();
    } else if (!strcmp(which, "other")) {
        pthread_t thread;
        pthread_barrier_init(&both, NULL, 2);
        pthread_create(&thread, NULL, other, NULL);
        pthread_barrier_wait(&both);
    } else {
        block = unused_block(!strcmp(which, "last"));
    }
    if (!strcmp(how, "realloc"))
        block = (char *)realloc(block, 200);
    else if (!strcmp(how, "usable"))
        argc = (int)malloc_usable_size(block);
    else
        free(block); /* HERE */
    surface();
    return argc;
}
