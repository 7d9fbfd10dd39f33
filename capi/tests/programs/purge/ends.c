/* The purge thread never keeps a process alive. Argument 1: how the program ends. Run with a decay
   far longer than the test waits. */
#include "purge.h"

static void *stay_a_little(void *unused) {
    nap(200);
    fill_and_empty();
    nap(200);
    return unused;
}

int main(int count, char **arguments) {
    pthread_t thread;
    CHECK(count == 2);
    with_purge_thread();
    if (!strcmp(arguments[1], "return")) return 0;
    if (!strcmp(arguments[1], "exit")) exit(0);
    if (!strcmp(arguments[1], "last-thread")) CHECK(pthread_create(&thread, NULL, stay_a_little, NULL) == 0);
    pthread_exit(NULL);
}
