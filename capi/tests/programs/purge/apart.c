/* A program that counts its threads right after a fork, as Python 3.12 does, or in a handler before
   it, finds only its own: the purge thread gives back what it can, ends before the fork, and comes
   back afterwards. With an argument, what stays resident is not checked. */
#include "purge.h"

/* A function that is new in Python 3.12. */
extern const unsigned long Py_Version;
const unsigned long Py_Version = 0x030C00F0;

enum { ROUNDS = 20 };

/* Closed when the child has ended: it would get SIGHUP. */
static int terminal = -1;

/* As Python counts them: the 20th field of the line. The second ends in a parenthesis. */
static int threads(void) {
    char line[1024];
    CHECK(read_file("/proc/self/stat", line, sizeof line) > 0);
    const char *at = strrchr(line, ')');
    for (int field = 2; field < 20; field++) at = strchr(at + 1, ' ');
    return atoi(at);
}

static int before;

static void note_before(void) {
    before = threads();
}

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

int main(int argc, char **argv) {
    (void)argv;
    int alone = 0;
    size_t small = resident();
    CHECK(served_by_neap("malloc"));
    CHECK(pthread_atfork(note_before, NULL, NULL) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(until(comes_back));
        CHECK(threads() == 2);
        pid_t child = round % 2 ? fork_with_terminal() : fork();
        /* There may be no terminal, or no such function: glibc before 2.34 has it elsewhere. */
        if (child < 0) child = fork();
        if (child == 0) {
            CHECK(threads() == 1);
            fill_and_empty();
            _exit(0);
        }
        /* On a busy machine, the fork does not wait for it. */
        if (threads() == 1 && before == 1) {
            alone++;
            CHECK(argc > 1 || resident() <= small + ALLOWANCE);
        }
        ended_well(child);
        if (terminal >= 0) close(terminal);
        terminal = -1;
    }
    CHECK(alone >= ROUNDS / 2);
    return 0;
}
