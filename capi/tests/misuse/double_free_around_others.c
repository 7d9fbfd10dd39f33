/* a, b, a of several sizes, and by the calls that take blocks in ways of their own. A child for
   each. */
#include "misuse.h"
#include <signal.h>
#include <sys/wait.h>

static void *zeroed(size_t size) { return calloc(1, size); }
static void *resized(size_t size) { return realloc(malloc(16), size); }
static void *aligned(size_t size) { return aligned_alloc(64, size); }

static void *(*const ways[])(size_t) = {malloc, zeroed, resized, aligned};
static const size_t sizes[] = {64, 1024, 1100, 3072};
static void *kept[8];

static void child(size_t size, void *(*way)(size_t)) {
    for (int i = 0; i < 5; i++) kept[i] = malloc(size);
    free(kept[1]);
    free(kept[3]);
    free(kept[1]); /* HERE */
    for (int i = 5; i < 8; i++) kept[i] = way(size);
    _exit(0);
}

int main(void) {
    int ended = 0;
    for (int pair = 0; pair < 16; pair++) {
        int status;
        pid_t pid = fork();
        if (pid == 0) child(sizes[pair / 4], ways[pair % 4]);
        if (waitpid(pid, &status, 0) != pid) _exit(3);
        ended += WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    }
    return 16 - ended;
}
