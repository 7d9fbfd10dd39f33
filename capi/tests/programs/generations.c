/* Forty generations of forks, each of which asks about touched pages: descriptors do not add up. */
#include "check.h"
#include <dirent.h>
#include <sys/wait.h>

static int descriptors(void) {
    DIR *folder = opendir("/proc/self/fd");
    int count = 0;
    CHECK(folder != NULL);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

/* The library's purge thread has a file open now and then, for as long as it has no processor. */
static int settles_at(int most) {
    for (int turn = 0; turn < 30000 && descriptors() > most; turn++) usleep(1000);
    return descriptors() <= most;
}

static void ask(void) {
    for (int turn = 0; turn < 4; turn++) {
        char *block = calloc(1, 4ul << 20);
        CHECK(block != NULL);
        block[0] = 1;
        free(block);
    }
}

int main(void) {
    CHECK(served_by_neap("calloc"));
    ask();
    int first = descriptors(), status;
    for (int turn = 0; turn < 20; turn++) {
        usleep(1000);
        int count = descriptors();
        if (count < first) first = count;
    }
    for (int generation = 0; generation < 40; generation++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child > 0) {
            CHECK(waitpid(child, &status, 0) == child);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
        ask();
        CHECK(settles_at(first));
    }
    _exit(0);
}
