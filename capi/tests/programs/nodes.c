/* Eight threads, every other one on the second NUMA node, allocate 20 MB of mixed blocks each, one
   after another, then free them in another order, nine times. The kernel tells on which node the
   pages are that they have in the end: at least 95 in 100 bytes on the thread's own.

   Prints "one node" and ends with 77 where there are no two nodes with processors. */
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

enum { THREADS = 8, ROUNDS = 9, BYTES = 20 << 20, MOST = 1 << 15, PAGE = 4096, OUT = 77 };

static struct block {
    unsigned char *at;
    size_t size;
} blocks[THREADS][MOST];
static int counts[THREADS];
static cpu_set_t processors[2];
static pthread_barrier_t all;

/* The processors of a node; none if it does not exist. */
static void read_processors(int node) {
    char path[64], list[256] = "";
    snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
    FILE *file = fopen(path, "re");
    CPU_ZERO(&processors[node]);
    if (file && fgets(list, sizeof list, file))
        for (char *part = strtok(list, ","); part; part = strtok(NULL, ",")) {
            int from, to, read = sscanf(part, "%d-%d", &from, &to);
            for (int one = from; read > 0 && one <= (read > 1 ? to : from); one++)
                CPU_SET(one, &processors[node]);
        }
    if (file) fclose(file);
}

static unsigned next(unsigned *state) {
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static size_t any_size(unsigned *state) {
    static const unsigned least[16] = {[8] = 512, 512, 512, 512, 512, 8192, 8192, 40000};
    static const unsigned most[4] = {500, 8000, 30000, 200000};
    unsigned kind = next(state) % 16;
    return least[kind] + 16 + next(state) % most[(kind > 7) + (kind > 12) + (kind > 14)];
}

static void fill(int me, unsigned *state) {
    size_t sum = 0;
    for (counts[me] = 0; sum < BYTES; counts[me]++) {
        struct block *block = &blocks[me][counts[me]];
        block->size = any_size(state);
        block->at = malloc(block->size);
        CHECK(block->at && counts[me] + 1 < MOST);
        memset(block->at, me, block->size);
        sum += block->size;
    }
}

static void *live(void *number) {
    int me = (int)(intptr_t)number;
    unsigned state = 77 + me;
    CHECK(sched_setaffinity(0, sizeof processors[0], &processors[me % 2]) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int turn = 0; turn < THREADS; turn++) {
            if ((turn + round) % THREADS == me) fill(me, &state);
            pthread_barrier_wait(&all);
        }
        for (int turn = 0; turn < THREADS && round + 1 < ROUNDS; turn++) {
            if ((turn + 3 * round) % THREADS == me)
                for (int i = 0; i < counts[me]; i++) free(blocks[me][i].at);
            pthread_barrier_wait(&all);
        }
    }
    return NULL;
}

static int node_of(uintptr_t page) {
    void *address = (void *)page;
    int node = -1;
    CHECK(syscall(SYS_move_pages, 0, 1L, &address, NULL, &node, 0) == 0);
    return node;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    for (int node = 0; node < 2; node++) read_processors(node);
    if (!CPU_COUNT(&processors[0]) || !CPU_COUNT(&processors[1])) return puts("one node"), OUT;
    pthread_t ids[THREADS];
    size_t sum = 0, near = 0;
    CHECK(pthread_barrier_init(&all, NULL, THREADS) == 0);
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&ids[i], NULL, live, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(ids[i], NULL) == 0);
    for (int me = 0; me < THREADS; me++)
        for (struct block *block = blocks[me]; block < blocks[me] + counts[me]; block++) {
            uintptr_t from = (uintptr_t)block->at, to = from + block->size, end;
            for (; from < to; from = end) {
                end = from / PAGE * PAGE + PAGE;
                if (end > to) end = to;
                sum += end - from;
                near += node_of(from / PAGE * PAGE) == me % 2 ? end - from : 0;
            }
        }
    printf("%zu of 1000 bytes are near\n", near * 1000 / sum);
    CHECK(near * 100 >= sum * 95);
    return 0;
}
