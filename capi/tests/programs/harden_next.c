/* A thread that only frees fills its magazines from empty. Here it frees blocks of two sizes in
   turn. The block that it allocates next must differ from process to process. */
#include "check.h"
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

enum { PROCESSES = 12, BLOCKS = 10000, BYTES = 200 };

static void *blocks[BLOCKS];

/* The number of the block that the next call returns; BLOCKS if it is none of them. */
static void *next(void *number) {
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    void *block = malloc(BYTES);
    int at = 0;
    while (at < BLOCKS && blocks[at] != block) at++;
    *(int *)number = at;
    return NULL;
}

static int next_here(void) {
    int number = -1;
    pthread_t thread;
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(i % 2 ? 48 : BYTES)));
    CHECK(pthread_create(&thread, NULL, next, &number) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    return number;
}

/* Executes the program again, because a child that only forks has its parent's secrets. */
static int next_in_a_process(const char *program) {
    char command[PATH_MAX + 8];
    int number = -1;
    snprintf(command, sizeof command, "'%s' once", program);
    FILE *output = popen(command, "r");
    CHECK(output && fscanf(output, "%d", &number) == 1 && pclose(output) == 0);
    return number;
}

int main(int arguments, char **argument) {
    if (arguments > 1) return printf("%d\n", next_here()) < 0;
    int same = 0, first = next_in_a_process(argument[0]);
    CHECK(first < BLOCKS);
    for (int i = 1; i < PROCESSES; i++) same += next_in_a_process(argument[0]) == first;
    CHECK(same < PROCESSES / 3);
    return 0;
}
