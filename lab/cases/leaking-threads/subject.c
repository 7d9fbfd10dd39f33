// Generations of eight short threads. Each thread allocates 3,000 blocks of 16 to 512 bytes, frees
// three quarters of them, passes a random quarter on, and ends. The blocks of a generation live for
// 100 generations; then the main thread frees them.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AT_ONCE = 8, GENERATIONS = 800, LIFE = 100, BLOCKS = 3000, KEPT = BLOCKS / 4 };

static void *kept[LIFE][AT_ONCE][KEPT];
static uint64_t bytes[LIFE][AT_ONCE];

struct place {
    int generation, thread;
};

static void say(const char *line) {
    puts(line);
    fflush(stdout);
}

static uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

static void *live(void *argument) {
    struct place *place = argument;
    int slot = place->generation % LIFE, thread = place->thread;
    uint64_t seed = 88172645463325252u + place->generation * AT_ONCE + thread;
    void *blocks[BLOCKS];
    size_t sizes[BLOCKS];
    for (int n = 0; n < BLOCKS; n++) {
        sizes[n] = 16 + next(&seed) % 497;
        memset(blocks[n] = malloc(sizes[n]), n, sizes[n]);
    }
    // The first KEPT of a random order stay.
    for (int n = 0; n < BLOCKS; n++) {
        int other = n + next(&seed) % (BLOCKS - n);
        void *block = blocks[other];
        size_t size = sizes[other];
        blocks[other] = blocks[n], sizes[other] = sizes[n];
        blocks[n] = block, sizes[n] = size;
    }
    bytes[slot][thread] = 0;
    for (int n = 0; n < BLOCKS; n++) {
        if (n < KEPT) {
            kept[slot][thread][n] = blocks[n];
            bytes[slot][thread] += sizes[n];
        } else
            free(blocks[n]);
    }
    return NULL;
}

int main(void) {
    say("work");
    for (int generation = 0; generation < GENERATIONS; generation++) {
        pthread_t threads[AT_ONCE];
        struct place places[AT_ONCE];
        for (int n = 0; n < AT_ONCE; n++) {
            if (generation >= LIFE)
                for (int block = 0; block < KEPT; block++)
                    free(kept[generation % LIFE][n][block]);
            places[n] = (struct place){generation, n};
            pthread_create(&threads[n], NULL, live, &places[n]);
        }
        for (int n = 0; n < AT_ONCE; n++)
            pthread_join(threads[n], NULL);
    }
    uint64_t sum = 0;
    for (int slot = 0; slot < LIFE; slot++)
        for (int n = 0; n < AT_ONCE; n++)
            sum += bytes[slot][n];
    printf("live %llu\ncheck %llu\n", (unsigned long long)sum, (unsigned long long)sum);
    say("rest");
    char byte;
    while (read(0, &byte, 1) > 0) {}
    return 0;
}
