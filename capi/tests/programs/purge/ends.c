/* The purge thread never keeps a process alive. Argument 1: how the program ends. Run with a decay
   far longer than the test waits. */
#include "purge.h"

static void *stay_a_little(void *unused) {
    nap(200);
    fill_and_empty();
    nap(200);
    return unused;
}

static void *stay_without_heap(void *unused) {
    nap(400);
    return unused;
}

static pthread_key_t key;

/* The last free of the process, in a thread whose cache is gone. */
static void free_late(void *block) {
    nap(20);
    free(block);
}

static void *leave_a_block(void *unused) {
    nap(200);
    CHECK(pthread_setspecific(key, malloc(100)) == 0);
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    CHECK(count == 2);
    with_purge_thread();
    if (!strcmp(arguments[1], "return")) return 0;
    if (!strcmp(arguments[1], "exit")) exit(0);
    if (strstr(arguments[1], "last-thread")) CHECK(pthread_create(&thread, NULL, stay_a_little, NULL) == 0);
    if (strstr(arguments[1], "stranger")) CHECK(pthread_create(&thread, NULL, stay_without_heap, NULL) == 0);
    if (!strcmp(arguments[1], "late-free")) {
        CHECK(pthread_key_create(&key, free_late) == 0);
        CHECK(pthread_create(&thread, NULL, leave_a_block, NULL) == 0);
    }
    /* Past the C library, which would end the process for the last thread. */
    if (!strncmp(arguments[1], "raw", 3)) syscall(SYS_exit, 0);
    pthread_exit(NULL);
}
