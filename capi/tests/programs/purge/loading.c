/* Threads load and close libraries that free much while the loader's lock is held, as purge threads
   come and go. Each argument is a copy of the library, and has a thread of its own. */
#include "purge.h"

enum { TURNS = 40 };
static int seen;

static void *load_and_close(void *path) {
    for (int turn = 0; turn < TURNS; turn++) {
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        CHECK(library);
        CHECK(dlclose(library) == 0);
        if (turn % 8 == 7) nap(30); /* time for a purge, and for its end */
    }
    return NULL;
}

static void *watch(void *stop) {
    do {
        nap(1);
        seen |= purge_threads() > 0;
    } while (!*(volatile int *)stop);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t ids[16], watcher;
    int stop = 0;
    CHECK(count >= 3 && count <= 17 && served_by_neap("malloc"));
    alarm(240); /* a deadlock ends as SIGALRM */
    CHECK(pthread_create(&watcher, NULL, watch, &stop) == 0);
    for (int i = 1; i < count; i++)
        CHECK(pthread_create(&ids[i - 1], NULL, load_and_close, arguments[i]) == 0);
    for (int i = 1; i < count; i++) CHECK(pthread_join(ids[i - 1], NULL) == 0);
    stop = 1;
    CHECK(pthread_join(watcher, NULL) == 0);
    CHECK(seen); /* else nothing was tested */
    return 0;
}
