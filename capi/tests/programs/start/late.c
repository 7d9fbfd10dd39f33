/* Forks while another thread allocates under the lock that the fork handlers of early_library.c
   take. */
#include "../check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>

extern pthread_mutex_t early_lock;
extern void *early_block;
static atomic_int stop;

static void *allocate(void *unused) {
    void *blocks[100];
    while (!stop) {
        pthread_mutex_lock(&early_lock);
        for (int i = 0; i < 100; i++) CHECK(blocks[i] = malloc(100000));
        for (int i = 0; i < 100; i++) free(blocks[i]);
        pthread_mutex_unlock(&early_lock);
    }
    return unused;
}

int main(void) {
    pthread_t thread;
    alarm(120); /* a deadlock ends as SIGALRM */
    free(early_block);
    CHECK(pthread_create(&thread, NULL, allocate, NULL) == 0);
    for (int i = 0; i < 300; i++) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            free(malloc(100000));
            _exit(7);
        }
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    stop = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
