/* Forks in a handler that interrupts a drain: the thread looks at caches whose threads are at work,
 * and waits for one of them. In the child that thread is not there, and the handler returns. Prints
 * nothing. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 6, BLOCKS = 300 };
static volatile sig_atomic_t is_child, is_due = 1, forks;

static void *work(void *unused) {
    (void)unused;
    static __thread void *blocks[BLOCKS];
    for (size_t round = 0;; round++) {
        for (int i = 0; i < BLOCKS; i++)
            blocks[i] = malloc(16 + (round * 40 + (size_t)i) % 3000);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    return NULL;
}

static void copy(int signal) {
    (void)signal;
    int kept = errno, status = 0;
    pid_t child = fork();
    is_child = child == 0;
    if (child > 0 && (waitpid(child, &status, 0) != child || status != 0))
        _exit(1);
    forks++;
    is_due = 1;
    errno = kept;
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 300;
    struct sigaction action = {.sa_handler = copy, .sa_flags = SA_RESTART};
    sigset_t alarms;
    sigemptyset(&alarms);
    sigaddset(&alarms, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarms, NULL);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, NULL) != 0)
            return 2;
    }
    sigaction(SIGALRM, &action, NULL);
    pthread_sigmask(SIG_UNBLOCK, &alarms, NULL);
    while (forks < rounds && !is_child) {
        if (is_due) {
            struct itimerval time = {.it_value = {.tv_usec = 200 + 37 * (forks % 40)}};
            is_due = 0;
            setitimer(ITIMER_REAL, &time, NULL);
        }
        malloc_trim(0);
    }
    if (is_child)
        malloc_trim(0);
    _exit(0);
}
