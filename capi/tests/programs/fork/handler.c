/* fork in a handler of signals that interrupts malloc and free, in a program with one thread (and
   perhaps a purge thread, which the program does not know). Argument 1: how many forks. Argument 2:
   what the children do: `end` at once, or `return` from the handler and go on allocating. */
#include "../check.h"
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>

static volatile sig_atomic_t forks, wanted, returns, is_child;

/* Once, soon, and each time after another while: a timer that goes on would leave no time between
   two handlers. */
static void arm(void) {
    struct itimerval soon = {{0, 0}, {0, 20 + forks * 7 % 100}};
    CHECK(setitimer(ITIMER_REAL, &soon, NULL) == 0);
}

static void on_timer(int number) {
    (void)number;
    if (is_child || forks >= wanted) return;
    pid_t pid = fork();
    if (pid == 0) {
        is_child = 1;
        if (!returns) _exit(0);
        return;
    }
    if (pid < 0) _exit(3);
    forks++;
    int status;
    pid_t ended;
    while ((ended = waitpid(pid, &status, 0)) < 0) {}
    if (ended != pid || status != 0) _exit(4);
    arm();
}

enum { SLOTS = 128 };

/* Mostly slow paths, where the heap is locked: blocks of the page heap, and more small ones than a
   thread keeps. Every block is written, and read back. */
static void churn(unsigned rounds) {
    static unsigned state = 1;
    static unsigned char *slots[SLOTS];
    static size_t sizes[SLOTS];
    for (; rounds > 0; rounds--) {
        state = state * 1103515245 + 12345;
        unsigned at = state >> 16 & (SLOTS - 1);
        size_t size = state >> 30 ? 8192 + (state >> 8 & 0x1ffff) : 16 + (state >> 8 & 0x7ff);
        unsigned char mark = (unsigned char)(at | 1);
        if (slots[at]) {
            CHECK(slots[at][0] == mark && slots[at][sizes[at] - 1] == mark);
            free(slots[at]);
        }
        slots[at] = state >> 27 & 7 ? malloc(size) : calloc(1, size);
        CHECK(slots[at]);
        sizes[at] = size;
        slots[at][0] = slots[at][size - 1] = mark;
    }
}

int main(int count, char **arguments) {
    CHECK(count == 3 && served_by_neap("malloc"));
    wanted = atoi(arguments[1]);
    returns = !strcmp(arguments[2], "return");
    churn(20000); /* a purge thread has reason to be there */
    struct sigaction action = {.sa_handler = on_timer, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);
    arm();
    while (forks < wanted && !is_child) churn(50);
    if (is_child) churn(60);
    return 0;
}
