/* Calls nothing of the library's by name: the C library does. */
#define _GNU_SOURCE
#include <stdio.h>

int main(void) {
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen("/proc/self/maps", "r");
    return file && getline(&line, &room, file) > 0 ? 0 : 1;
}
