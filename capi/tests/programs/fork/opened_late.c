/* Children of a program that opened the library, whose name is the argument, and whose threads
   allocate from it. */
#include "../check.h"
#include <pthread.h>
#include <sys/wait.h>

static void *(*take)(size_t);
static void (*give)(void *);
static volatile int stop;

static void *work(void *seed) {
    unsigned state = *(unsigned *)seed;
    while (!stop) {
        void *blocks[200];
        for (int i = 0; i < 200; i++) {
            state = state * 1103515245 + 12345;
            blocks[i] = take((state >> 8) % (i % 8 ? 2000 : 300000) + 1);
        }
        for (int i = 0; i < 200; i++) give(blocks[i]);
    }
    return NULL;
}

int main(int argc, char **argv) {
    CHECK(argc > 1);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library != NULL);
    *(void **)&take = dlsym(library, "malloc");
    *(void **)&give = dlsym(library, "free");
    CHECK(take != NULL && give != NULL);
    pthread_t threads[3];
    unsigned seeds[3] = {1, 2, 3};
    for (int i = 0; i < 3; i++) CHECK(pthread_create(threads + i, NULL, work, seeds + i) == 0);
    for (int round = 0; round < 60; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            for (size_t i = 1; i < 2000; i++) give(take(i * 97));
            _exit(0);
        }
        int status;
        CHECK(waitpid(child, &status, 0) == child && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    return 0;
}
