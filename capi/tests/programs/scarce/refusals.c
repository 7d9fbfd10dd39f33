/* Threads ask again and again for what cannot be had, while they use the heap. Giving free pages
   back to the kernel does not help them: these calls are counted. */
#include "own_calls.h"
#include <pthread.h>
#include <sys/mman.h>

enum { ROUNDS = 1000, HELD = 16 };

static int calls, refused;

static long seen(long number, const long *arguments) {
    int purges = number == SYS_madvise && arguments[2] == MADV_DONTNEED;
    __atomic_add_fetch(&calls, purges, __ATOMIC_RELAXED);
    return passed(number, arguments);
}

static void *work(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number;
    void *blocks[64] = {0};
    watch_calls(1);
    for (int i = 0; i < ROUNDS; i++) {
        if (malloc((size_t)512 << 20) == NULL) __atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
        for (int k = 0; k < 4; k++) {
            seed = seed * 1103515245 + 12345;
            int at = seed >> 16 & 63;
            free(blocks[at]);
            blocks[at] = malloc(16 + (seed >> 8 & 131071));
        }
    }
    watch_calls(0);
    for (int i = 0; i < 64; i++) free(blocks[i]);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    prepare_calls();
    int threads = atoi(arguments[1]);
    pthread_t running[32];
    void *held[HELD];
    for (int i = 0; i < HELD; i++) {
        held[i] = malloc((size_t)40 << 20);
        CHECK(held[i] != NULL);
    }
    for (int i = 0; i < threads; i++)
        CHECK(pthread_create(&running[i], NULL, work, (void *)(uintptr_t)(i + 1)) == 0);
    for (int i = 0; i < threads; i++) CHECK(pthread_join(running[i], NULL) == 0);
    CHECK(refused == threads * ROUNDS);
    if (calls > refused / 10) dprintf(2, "%d calls for %d refusals\n", calls, refused);
    for (int i = 0; i < HELD; i++) free(held[i]);
    return 0;
}
