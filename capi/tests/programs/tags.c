/* Programs work as before with the measure `tag` of the hardened mode, and tags are what they are
   said to be. The argument is 1 where blocks have tags. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

static int tag_of(const void *block) {
    return (uintptr_t)block >> 56;
}

static const char *address_of(const void *block) {
    return (const char *)((uintptr_t)block << 8 >> 8);
}

static int by_address(const void *left, const void *right) {
    const char *l = address_of(*(char *const *)left), *r = address_of(*(char *const *)right);
    return (l > r) - (l < r);
}

/* Blocks side by side in a slab have different tags, and no block in use has the tag 0. */
static void neighbours_differ(size_t size, size_t class) {
    enum { COUNT = 3000 };
    static char *blocks[COUNT];
    int beside = 0;
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = malloc(size)) != NULL && tag_of(blocks[i]) > 0 && tag_of(blocks[i]) < 16);
        memset(blocks[i], 1, size);
    }
    qsort(blocks, COUNT, sizeof *blocks, by_address);
    for (int i = 1; i < COUNT; i++) {
        const char *here = address_of(blocks[i]), *before = address_of(blocks[i - 1]);
        if ((uintptr_t)here / 65536 == (uintptr_t)before / 65536 && here == before + class) {
            CHECK(tag_of(blocks[i]) != tag_of(blocks[i - 1]));
            beside++;
        }
    }
    CHECK(beside > COUNT / 8);
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

/* A block has never the tag that the one before it had at its address. */
static void last_differs(void) {
    enum { ADDRESSES = 1 << 18, TURNS = 200000 };
    static char *last[ADDRESSES];
    int again = 0;
    for (int i = 0; i < TURNS; i++) {
        char *block = malloc(100);
        char **known = &last[(uintptr_t)block / 16 % ADDRESSES];
        if (*known && address_of(*known) == address_of(block)) {
            CHECK(*known != block);
            again++;
        }
        *known = block;
        free(block);
    }
    CHECK(again > TURNS / 100);
}

/* Blocks of all sizes and alignments, by all calls, hold what was written. */
static void *work(void *argument) {
    enum { COUNT = 200, TURNS = 6000 };
    static __thread unsigned char *blocks[COUNT];
    static __thread size_t sizes[COUNT];
    unsigned state = (uintptr_t)argument;
    for (int turn = 0; turn < TURNS; turn++) {
        state = state * 1103515245 + 12345;
        int at = state / 65536 % COUNT, how = state / 16 % 8;
        size_t size = state / 256 % (how == 0 ? 20000 : 700), old = sizes[at];
        for (size_t i = 0; i < old; i++) CHECK(blocks[at][i] == (unsigned char)at);
        if (how >= 6) {
            CHECK((blocks[at] = realloc(blocks[at], size + 1)) != NULL);
            for (size_t i = 0; i < old && i < size + 1; i++) CHECK(blocks[at][i] == (unsigned char)at);
            size++;
        } else {
            free(blocks[at]);
            switch (how) {
            case 1: blocks[at] = calloc(1, size); break;
            case 2: blocks[at] = memalign(64 << how, size); break;
            case 3: CHECK(posix_memalign((void **)&blocks[at], 4096, size) == 0); break;
            default: blocks[at] = malloc(size);
            }
            CHECK(blocks[at] != NULL && (how != 1 || size == 0 || !blocks[at][size - 1]));
            CHECK(how != 3 || (uintptr_t)blocks[at] % 4096 == 0);
            CHECK(malloc_usable_size(blocks[at]) >= size);
        }
        sizes[at] = size;
        memset(blocks[at], at, size);
    }
    for (int at = 0; at < COUNT; at++) free(blocks[at]), blocks[at] = NULL, sizes[at] = 0;
    return NULL;
}

/* The kernel takes and fills blocks. */
static void system_calls(void) {
    int ends[2];
    char *from = malloc(30), *to = calloc(1, 30);
    strcpy(from, "a block with a tag");
    CHECK(pipe(ends) == 0 && write(ends[1], from, 30) == 30 && read(ends[0], to, 30) == 30);
    CHECK(!strcmp(from, to));
    free(from), free(to);
}

int main(int count, char **arguments) {
    CHECK(served_by_neap("malloc") && count == 2);
    if (arguments[1][0] == '1') {
        neighbours_differ(40, 48);
        neighbours_differ(500, 512);
        neighbours_differ(1, 16);
        last_differs();
    }
    system_calls();
    pthread_t threads[4];
    for (uintptr_t i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    char *kept = strdup("from before the fork");
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        work((void *)7);
        CHECK(!strcmp(kept, "from before the fork"));
        free(kept);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    work((void *)9);
    free(kept);
    return 0;
}
