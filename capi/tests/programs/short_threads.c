/* Many short threads, in batches: what they leave behind does not grow with their number. */
#include "resident.h"
#include <malloc.h>
#include <pthread.h>

enum { BATCH = 50 };

static void *short_life(void *carried) {
    void *blocks[40];
    for (int i = 0; i < 40; i++) {
        blocks[i] = malloc(16 << (i % 10));
        CHECK(blocks[i]);
        memset(blocks[i], i, 16);
    }
    for (int i = 0; i < 40; i++) free(blocks[i]);
    free(carried);
    return malloc(300);
}

static void threads(int count) {
    for (int done = 0; done < count; done += BATCH) {
        pthread_t ids[BATCH];
        for (int i = 0; i < BATCH; i++)
            CHECK(pthread_create(&ids[i], NULL, short_life, malloc(3000)) == 0);
        for (int i = 0; i < BATCH; i++) {
            void *left;
            CHECK(pthread_join(ids[i], &left) == 0 && left);
            free(left);
        }
    }
}

int main(int arguments, char **argument) {
    int count = arguments > 1 ? atoi(argument[1]) : 20000;
    CHECK(served_by_neap("malloc"));
    threads(1000);
    struct mallinfo2 before = mallinfo2();
    size_t at_first = resident();
    threads(count);
    struct mallinfo2 after = mallinfo2();
    /* How many of a batch live at once varies: room for a batch's caches, and none for the
       count's. */
    if (arguments > 1)
        printf("%d threads: arena %zu -> %zu, live %zu -> %zu, resident %zu -> %zu\n", count,
            before.arena, after.arena, before.uordblks, after.uordblks, at_first, resident());
    CHECK(after.uordblks < before.uordblks + (256 << 10));
    /* The heap reserves address space in steps of 16 MiB. It may need one more step, or two in
       hardened mode, if more threads of a batch live at once than in the first batches: on a loaded
       machine they do. Hardened and without a purge thread, 27 to 29 MB stay resident after 20,000
       threads and after 60,000, and 19 to 22 after the first 1,000. */
    int hardened = getenv("NEAP_HARDEN") != NULL;
    CHECK(after.arena < before.arena + ((hardened ? 40 : 24) << 20));
    CHECK(resident() < at_first + ((hardened ? 16 : 8) << 20));
    return 0;
}
