/* A program that counts its threads right after a fork, as Python 3.12 does, finds only its own:
   the purge thread gives back what it can, ends before the fork, and comes back afterwards. */
#include "purge.h"

/* A function that is new in Python 3.12. */
void PyErr_GetRaisedException(void);
void PyErr_GetRaisedException(void) {}

enum { ROUNDS = 20 };

/* Closed when the child has ended: it would get SIGHUP. */
static int terminal = -1;

/* By Neap's `forkpty`, which calls the C library's. */
static pid_t fork_with_terminal(void) {
    int (*function)(int *, char *, const void *, const void *);
    *(void **)&function = dlsym(RTLD_DEFAULT, "forkpty");
    CHECK(function != NULL);
    return function(&terminal, NULL, NULL, NULL);
}

static int comes_back(void) {
    fill_and_empty();
    return one_lives();
}

int main(void) {
    int alone = 0;
    size_t before = resident();
    CHECK(served_by_neap("malloc"));
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(until(comes_back));
        pid_t child = round % 2 ? fork_with_terminal() : fork();
        /* There may be no terminal, or no such function: glibc before 2.34 has it elsewhere. */
        if (child < 0) child = fork();
        if (child == 0) {
            CHECK(tasks() == 1);
            fill_and_empty();
            _exit(0);
        }
        /* On a busy machine, the fork does not wait for it. */
        if (tasks() == 1) {
            alone++;
            CHECK(resident() <= before + ALLOWANCE);
        }
        ended_well(child);
        if (terminal >= 0) close(terminal);
        terminal = -1;
    }
    CHECK(alone >= ROUNDS / 2);
    return 0;
}
