/* Forks, having a library with fork handlers of its own. */
#include "check.h"
#include <sys/wait.h>

int main(void) {
    int status = -1;
    alarm(120); /* or it hangs */
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) _exit(7);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    return 0;
}
