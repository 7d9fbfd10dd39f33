/* fork in one thread, fflush(NULL) in a second, getline in a third. The second holds the list of
   streams and waits for a stream; the third holds that stream and allocates. Argument 1: how many
   forks.

   The second pauses: glibc's lock on the list goes to whoever comes first, and a thread that takes
   it again at once starves fork, under glibc's own heap as well. On two busy cores 1,000 forks
   without the pause take 20 to 230 seconds. */
#include "../check.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <time.h>

static atomic_int stop;
static FILE *lines;

static void *flush_all(void *unused) {
    struct timespec pause = {0, 20000};
    while (!stop) {
        fflush(NULL);
        nanosleep(&pause, NULL);
    }
    return unused;
}

/* Every line is longer than the last buffer, and new memory. */
static void *read_lines(void *unused) {
    while (!stop) {
        char *line = NULL;
        size_t room = 0;
        rewind(lines);
        while (!stop && getline(&line, &room, lines) > 0) {
            free(line);
            line = NULL;
            room = 0;
        }
        free(line);
    }
    return unused;
}

static void write_lines(void) {
    lines = tmpfile();
    CHECK(lines);
    for (int length = 1; length < 1 << 17; length = length * 3 / 2 + 1) {
        for (int i = 0; i < length; i++) putc('x', lines);
        putc('\n', lines);
    }
    CHECK(fflush(lines) == 0);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    alarm(240); /* a deadlock ends as SIGALRM */
    write_lines();
    pthread_t threads[2];
    CHECK(pthread_create(&threads[0], NULL, flush_all, NULL) == 0);
    CHECK(pthread_create(&threads[1], NULL, read_lines, NULL) == 0);
    for (int left = atoi(arguments[1]); left > 0; left--) {
        int status;
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            /* Both work in the child at once. */
            FILE *own = fopen("/dev/null", "w");
            void *block = malloc(left % 200000);
            CHECK(own && block);
            fclose(own);
            free(block);
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    }
    stop = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return 0;
}
