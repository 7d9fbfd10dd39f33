/* A handler of SIGABRT ends the program in the midst of a `free` that found an error. */
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static void end(int signal) {
    (void)signal;
    _exit(3);
}

int main(void) {
    signal(SIGABRT, end);
    /* Until the thread has all that it needs for the short way to free a block. */
    for (int i = 0; i < 500; i++) free(malloc(20));
    volatile char *block = (volatile char *)malloc(20);
    if (!block) return 4;
    block[20] = 1;
    free((void *)block);
    return 5;
}
