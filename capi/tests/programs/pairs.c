/* Says which options are in force: a word for each that shows in what the program may do. */
#include "check.h"
#include <dirent.h>
#include <sys/wait.h>

/* Whether a child that does this is stopped. */
static int stops(void (*work)(void)) {
    pid_t child = fork();
    int status;
    if (child == 0) {
        close(STDERR_FILENO);
        work();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return WIFSIGNALED(status);
}

static char *volatile block;
static volatile char sink;

static void second_free(void) {
    char *others[8];
    block = malloc(24);
    for (int i = 0; i < 8; i++) others[i] = malloc(24);
    free(block);
    for (int i = 0; i < 8; i++) free(others[i]);
    free(block);
}

static void write_past(void) {
    block = malloc(24);
    /* Another value than the canary's, which is random. */
    block[24] = (char)~block[24];
    free(block);
}

static void read_far(void) {
    block = malloc(24);
    sink = block[4096];
}

static int threads(void) {
    DIR *tasks = opendir("/proc/self/task");
    int count = -2; /* . and .. */
    CHECK(tasks != NULL);
    while (readdir(tasks)) count++;
    closedir(tasks);
    return count;
}

int main(int count, char **unused) {
    static void *volatile kept[5000];
    /* The thread may start a little later, where the argument says that it does. */
    for (int i = 0; count > 1 && i < 3000 && threads() == 1; i++) usleep(10000);
    fputs(threads() > 1 ? "thread " : "", stdout);
    fflush(stdout);
    printf("%s%s%s", stops(second_free) ? "second " : "", stops(write_past) ? "past " : "",
           stops(read_far) ? "far " : "");
    block = malloc(100 << 20);
    puts(block ? "" : "limit");
    free(block);
    for (int i = 0; i < 5000; i++) kept[i] = malloc(4000);
    return unused == NULL || kept[0] == NULL;
}
