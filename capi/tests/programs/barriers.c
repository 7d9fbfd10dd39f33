/* A trim issues one membarrier a batch of threads, not one a thread. This program's `syscall` is
   the one that the library finds. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <stdarg.h>
#include <sys/syscall.h>

enum { THREADS = 320, BATCH = 32, BLOCKS = 12, STACK = 128 << 10 };

static pthread_barrier_t filled, trimmed;
static int barriers;

#ifdef __x86_64__
long syscall(long number, ...) {
    long a[6], result;
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) a[i] = va_arg(list, long);
    va_end(list);
    if (number == SYS_membarrier) __atomic_fetch_add(&barriers, 1, __ATOMIC_RELAXED);
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = -result;
        return -1;
    }
    return result;
}
#endif

static void *hold(void *unused) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(100)));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&trimmed);
    return unused;
}

int main(void) {
#ifndef __x86_64__
    puts("SKIPPED: system calls are counted on x86-64 only");
    return 77;
#endif
    CHECK(served_by_neap("malloc"));
    pthread_t ids[THREADS];
    pthread_attr_t attributes;
    CHECK(pthread_attr_init(&attributes) == 0);
    CHECK(pthread_attr_setstacksize(&attributes, STACK) == 0);
    pthread_barrier_init(&filled, NULL, THREADS + 1);
    pthread_barrier_init(&trimmed, NULL, THREADS + 1);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&ids[i], &attributes, hold, NULL) == 0);
    pthread_barrier_wait(&filled);
    struct mallinfo2 before = mallinfo2();
    int earlier = barriers;
    malloc_trim(0);
    int issued = barriers - earlier;
    struct mallinfo2 after = mallinfo2();
    pthread_barrier_wait(&trimmed);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    /* One block a class and thread stays. */
    CHECK(before.fsmblks >= THREADS * 100 * BLOCKS / 2 && after.fsmblks < before.fsmblks / 2);
    /* The first call may be refused until the process is registered; a round of the purge thread
       may come between. */
    CHECK(issued >= 1 && issued <= 2 * (THREADS / BATCH) + 4);
    return 0;
}
