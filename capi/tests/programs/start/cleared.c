/* A program without libdl that clears its environment, then forks: the handlers of fork run, and
   the child is a process of its own. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static int has_run;

static void in_child(void) { has_run = 1; }

int main(void) {
    int status = 0;
    void *block = malloc(100);
    if (pthread_atfork(NULL, NULL, in_child) != 0 || clearenv() != 0) return 1;
    pid_t child = fork();
    if (child < 0) return 2;
    free(block);
    if (child == 0) {
        free(malloc(1000));
        exit(has_run ? 7 : 3);
    }
    if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 4;
    return WEXITSTATUS(status) == 7 ? 0 : WEXITSTATUS(status);
}
