/* One access that another block's memory tag forbids; the argument chooses it. The handler writes
   how the kernel calls the fault. Says "returned" if the access went through. */
#include "misuse.h"
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

enum { SIZE = 40, GRANULE = 16, END = 48 };

static void tell(int number, siginfo_t *info, void *context) {
    char text[32];
    int length = snprintf(text, sizeof text, "code %d\n", info->si_code);
    if (write(1, text, length) != length) _exit(2);
    // The handler is the default one again, so that the access ends the program.
}

static void *write_past(void *block) {
    ((volatile char *)block)[END] = 1;
    return NULL;
}

/* Frees a block and waits until another one has its address. */
static char *another_at(char *block) {
    const uintptr_t address = (uintptr_t)block << 8;
    free(block);
    for (int i = 0; i < 5000000; i++) {
        char *other = malloc(SIZE);
        if ((uintptr_t)other << 8 == address) return other;
        free(other);
    }
    _exit(4);
}

int main(int count, char **arguments) {
    struct sigaction action = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_RESETHAND};
    if (count != 2 || sigaction(SIGSEGV, &action, NULL) != 0) return 3;
    const char *how = arguments[1];
    volatile char *block = malloc(SIZE);
    if (!block) return 3;
    memset((char *)block, 1, SIZE);
    if (!strcmp(how, "read freed")) {
        free((char *)block);
        (void)*block;
    } else if (!strcmp(how, "write freed")) {
        free((char *)block);
        block[SIZE - 1] = 2;
    } else if (!strcmp(how, "read past")) {
        (void)block[END];
    } else if (!strcmp(how, "write past")) {
        write_past((char *)block);
    } else if (!strcmp(how, "write before")) {
        block[-1] = 2;
    } else if (!strcmp(how, "read again")) {
        another_at((char *)block);
        (void)*block;
    } else if (!strcmp(how, "shrunk")) {
        block = realloc((char *)block, GRANULE * 2);
        block[GRANULE * 2] = 2;
    } else if (!strcmp(how, "thread")) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, write_past, (char *)block) != 0) return 3;
        pthread_join(thread, NULL);
    } else if (!strcmp(how, "child")) {
        int status;
        pid_t child = fork();
        if (child == 0) write_past((char *)block), _exit(0);
        if (waitpid(child, &status, 0) != child) return 3;
        if (WIFSIGNALED(status)) signal(SIGSEGV, SIG_DFL), raise(WTERMSIG(status));
    } else if (!strcmp(how, "free twice")) {
        free((char *)block), free((char *)block);
    } else if (!strcmp(how, "free again")) {
        another_at((char *)block);
        free((char *)block);
    } else if (!strcmp(how, "realloc again")) {
        another_at((char *)block);
        realloc((char *)block, 10);
    } else if (!strcmp(how, "usable again")) {
        another_at((char *)block);
        malloc_usable_size((char *)block);
    } else {
        return 3;
    }
    surface();
    return 0;
}
