// Holds as many MiB as its first argument says, and at rest as many as its second says. With a
// third argument it holds them in that many forked children.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 1 << 20 };

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static void wait_for_the_end(void) {
    char byte;
    while (read(0, &byte, 1) > 0) {}
}

// Allocates, lets the sampler look, and frees from the end.
static void **grow_and_shrink(int most, int least, int pause) {
    void **blocks = malloc(most * sizeof *blocks);
    for (int n = 0; n < most; n++)
        memset(blocks[n] = malloc(BLOCK), n, BLOCK);
    usleep(pause);
    for (int n = least; n < most; n++)
        free(blocks[n]);
    return blocks;
}

int main(int count, char **arguments) {
    int most = atoi(arguments[1]), least = atoi(arguments[2]);
    int children = count > 3 ? atoi(arguments[3]) : 0;
    say("ready");
    say("work");
    int done[2];
    if (pipe(done) != 0)
        return 1;
    for (int n = 0; n < children; n++)
        if (fork() == 0) {
            setsid();
            grow_and_shrink(most / children, least / children, 2000000);
            if (write(done[1], ".", 1) != 1)
                _exit(1);
            wait_for_the_end();
            _exit(0);
        }
    void **blocks = children ? NULL : grow_and_shrink(most, least, 300000);
    char byte;
    for (int n = 0; n < children; n++)
        if (read(done[0], &byte, 1) != 1)
            return 1;
    printf("live %ld\ncheck %d\n", (long)least * BLOCK, blocks ? ((char *)blocks[0])[1] : 0);
    say("rest");
    wait_for_the_end();
    while (wait(NULL) > 0) {}
    return 0;
}
