/* A pagemap that was opened before fork describes the parent: it calls a page untouched that the
   child has written. Here such a descriptor is open in the child, is seen to lie about a block
   that is dirty, and calloc of that block must give zeros all the same.
   The argument: fork, clone (no fork handler runs), or planted (the parent's pagemap is put
   over the number of the child's own). */
#include "descriptors.h"
#include <malloc.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { SIZES = 3, TURNS = 4 };
static const size_t sizes[SIZES] = {1 << 20, 8 << 20, 3 << 20 | 12345};

static int stale;          /* the program's own descriptor of the parent's pagemap */
static int library_number; /* the library's, in the parent; -1 if it has none */

static int library_pagemap(void) {
    int numbers[MOST_DESCRIPTORS], count = open_pagemaps(numbers);
    for (int i = 0; i < count; i++)
        if (numbers[i] != stale) return numbers[i];
    return -1;
}

static char *zeroed(size_t size) {
    char *block = calloc(1, hidden(size));
    CHECK(block != NULL);
    for (size_t i = 0; i < size; i++)
        if (block[i] != 0) {
            dprintf(2, "stale_parent: wrong byte 0x%02x at offset %zu of %zu\n",
                    (unsigned char)block[i], i, size);
            abort();
        }
    return block;
}

/* A reused block makes the library ask, if it ever does; its pages end up unpopulated. */
static void make_it_ask(void) {
    for (int i = 0; i < SIZES * TURNS; i++) {
        size_t size = sizes[i % SIZES];
        char *block = zeroed(size);
        memset(block, 0xa5, size);
        free(block);
    }
    for (int i = 0; i < SIZES; i++) {
        char *block = malloc(hidden(sizes[i]));
        CHECK(block != NULL);
        uintptr_t low = ((uintptr_t)block + 4095) & -4096ul;
        uintptr_t high = ((uintptr_t)block + sizes[i]) & -4096ul;
        CHECK(madvise((void *)low, high - low, MADV_DONTNEED) == 0);
        free(block);
    }
}

/* Pages that lie wholly inside the block. */
static long asked(int pagemap, const char *block, size_t size) {
    uintptr_t low = ((uintptr_t)block + 4095) & -4096ul;
    uintptr_t high = ((uintptr_t)block + size) & -4096ul;
    return populated(pagemap, (void *)low, high - low);
}

/* Whether calloc gave the very block that was dirty and that the stale descriptor calls
   untouched. */
static int reused_under_a_lie(size_t size) {
    int fresh = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    char *block = malloc(hidden(size));
    CHECK(fresh >= 0 && block != NULL);
    memset(block, 0xa5, size);
    long in_parent = asked(stale, block, size), here = asked(fresh, block, size);
    CHECK(in_parent >= 0 && here == (long)(((uintptr_t)block + size) / 4096) -
                                        (long)(((uintptr_t)block + 4095) / 4096));
    close(fresh);
    free(block);
    char *again = zeroed(size);
    int reused = again == block && in_parent == 0;
    memset(again, 0x5a, size);
    free(again);
    return reused;
}

/* A clone of which the library hears nothing: clone() and syscall() are forks to it. */
static pid_t unseen_clone(void) {
#ifdef __x86_64__
    register long flags4 __asm__("r10") = 0;
    register long tls __asm__("r8") = 0;
    long answer = SYS_clone;
    __asm__ volatile("syscall"
                     : "+a"(answer)
                     : "D"((long)SIGCHLD), "S"(0L), "d"(0L), "r"(flags4), "r"(tls)
                     : "rcx", "r11", "memory");
    return (pid_t)answer;
#else
    return fork();
#endif
}

static void in_the_child(int planted, int cloned) {
    /* After a raw clone the number is the parent's still: nothing has allocated here. After fork
       the library's handler has closed it. */
    if (library_number >= 0 && cloned) CHECK(fcntl(library_number, F_GETFD) >= 0);
    int reused = 0;
    if (planted) {
        free(zeroed(sizes[0]));
        free(zeroed(sizes[0]));
        int own = library_pagemap();
        if (own >= 0) CHECK(dup3(stale, own, O_CLOEXEC) == own);
    }
    for (int i = 0; i < SIZES * TURNS; i++) reused += reused_under_a_lie(sizes[i % SIZES]);
    /* Else the trap was never set. */
    CHECK(reused >= SIZES);
    _exit(0);
}

int main(int count, char **arguments) {
    const char *kind = count == 2 ? arguments[1] : "";
    int planted = !strcmp(kind, "planted"), cloned = !strcmp(kind, "clone"), status = -1;
    CHECK(planted || cloned || !strcmp(kind, "fork"));
    CHECK(served_by_neap("malloc"));
    alarm(240);
    CHECK((stale = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) >= 0);
    make_it_ask();
    library_number = library_pagemap();
    pid_t pid = cloned ? unseen_clone() : fork();
    if (pid == 0) in_the_child(planted, cloned);
    CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
    dprintf(1, "the library's pagemap: %d\n", library_number);
    if (WIFSIGNALED(status)) raise(WTERMSIG(status));
    return WEXITSTATUS(status);
}
