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

/* The fewest of some counts: the library's purge thread has a file open now and then. */
static int settled(void) {
    int fewest = descriptors();
    for (int turn = 0; turn < 20; turn++) {
        usleep(1000);
        int count = descriptors();
        if (count < fewest) fewest = count;
    }
    return fewest;
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
    int first = settled(), status;
    for (int generation = 0; generation < 40; generation++) {
        pid_t child = fork();
        CHECK(child >= 0);
        if (child > 0) {
            CHECK(waitpid(child, &status, 0) == child);
            _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
        }
        ask();
        CHECK(settled() == first);
    }
    _exit(0);
}
