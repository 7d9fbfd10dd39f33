/* Live bytes stay at argument 1, while blocks of all sizes become others in random order, by two
   threads; then nine tenths are freed, and the process waits for the end of its standard input. */
#include "../purge/purge.h"

enum { THREADS = 2, TURNS = 6 };
static size_t share;
static pthread_barrier_t done, end;

struct mine {
    unsigned state;
    size_t count, room, bytes;
    unsigned char **blocks;
    size_t *sizes;
};

static unsigned draw(struct mine *mine) {
    return mine->state = mine->state * 1664525 + 1013904223;
}

/* Each turn other sizes are the common ones. */
static size_t some_size(struct mine *mine, int turn) {
    return 64 + (draw(mine) >> 8) % (512u << turn % 5);
}

static void take(struct mine *mine, int turn) {
    size_t size = some_size(mine, turn);
    if (mine->count == mine->room) return;
    unsigned char *block = malloc(size);
    CHECK(block);
    memset(block, 0x5a, size);
    mine->blocks[mine->count] = block, mine->sizes[mine->count++] = size, mine->bytes += size;
}

static void give(struct mine *mine) {
    size_t which = ((unsigned long long)draw(mine) * mine->count) >> 32, last = --mine->count;
    CHECK(mine->blocks[which][mine->sizes[which] - 1] == 0x5a);
    free(mine->blocks[which]);
    mine->bytes -= mine->sizes[which];
    mine->blocks[which] = mine->blocks[last], mine->sizes[which] = mine->sizes[last];
}

static void *churn(void *seed) {
    struct mine mine = {.state = (unsigned)(uintptr_t)seed, .room = share / 64};
    CHECK((mine.blocks = calloc(mine.room, sizeof *mine.blocks)));
    CHECK((mine.sizes = calloc(mine.room, sizeof *mine.sizes)));
    for (int turn = 0; turn < TURNS; turn++) {
        while (mine.bytes < share) take(&mine, turn);
        for (size_t step = mine.count * 2; step > 0 && mine.count > 0; step--) {
            give(&mine);
            while (mine.bytes < share) take(&mine, turn);
        }
    }
    while (mine.bytes > share / 10) give(&mine);
    pthread_barrier_wait(&done);
    pthread_barrier_wait(&end);
    return NULL;
}

int main(int count, char **arguments) {
    pthread_t ids[THREADS];
    char byte;
    CHECK(count == 2);
    share = strtoul(arguments[1], NULL, 10) / THREADS;
    pthread_barrier_init(&done, NULL, THREADS + 1), pthread_barrier_init(&end, NULL, THREADS + 1);
    for (uintptr_t i = 0; i < THREADS; i++) CHECK(pthread_create(&ids[i], NULL, churn, (void *)(i + 1)) == 0);
    pthread_barrier_wait(&done);
    CHECK(write(1, "done\n", 5) == 5);
    CHECK(read(0, &byte, 1) == 0);
    pthread_barrier_wait(&end);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    return 0;
}
