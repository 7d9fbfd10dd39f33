/* A leak: one request in ten keeps its copy. docs/profile.md uses it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *parse(const char *line) { return strdup(line); }

static size_t handle(int request) {
    char line[200];
    memset(line, 'x', sizeof line - 1);
    line[199] = 0;
    char *copy = parse(line);
    size_t length = strlen(copy);
    if (request % 10)
        free(copy); /* every tenth request keeps its copy */
    return length;
}

int main(void) {
    for (int request = 0; request < 2000000; request++)
        handle(request);
    puts("2000000 requests");
    return 0;
}
