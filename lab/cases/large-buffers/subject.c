// 20 buffers of 5 to 25 MiB, written whole. A random one gives way to one of another size, until
// there have been 2,000. Then all but four are freed.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BUFFERS = 20, LEFT = 4, REPLACED = 2000, MIB = 1 << 20, LEAST = 5 * MIB, MOST = 25 * MIB };

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

int main(void) {
    uint64_t seed = 88172645463325252u, sum = 0;
    char *buffers[BUFFERS] = {0};
    size_t sizes[BUFFERS] = {0};
    say("work");
    for (int n = 0; n < REPLACED; n++) {
        int place = n < BUFFERS ? n : (int)(next(&seed) % BUFFERS);
        if (sizes[place])
            sum += (unsigned char)buffers[place][next(&seed) % sizes[place]];
        free(buffers[place]);
        sizes[place] = LEAST + next(&seed) % (MOST - LEAST);
        buffers[place] = malloc(sizes[place]);
        memset(buffers[place], n, sizes[place]);
    }
    size_t live = 0;
    for (int n = 0; n < BUFFERS; n++) {
        if (n < LEFT)
            live += sizes[n];
        else
            free(buffers[n]);
    }
    printf("live %zu\ncheck %llu\n", live, (unsigned long long)sum);
    say("rest");
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
