/* Uses every part of the library for a moment, and checks every byte. REFUSALS says how often
   memory may be refused, each time with ENOMEM: "never", "once", or "ever". After the one refusal,
   the same call again succeeds. At the end it prints how many there were. */
#include "check.h"
#include "neap.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>

enum refusals { NEVER, ONCE, EVER };
static enum refusals allowed;
static int refused;

static void note_refusal(int error) {
    CHECK(error == ENOMEM);
    CHECK(allowed != NEVER);
    int before = __atomic_fetch_add(&refused, 1, __ATOMIC_RELAXED);
    CHECK(allowed == EVER || before == 0);
}

/* A result of the library: null only if a refusal is allowed. */
static int is_refused(const void *block) {
    if (!block) note_refusal(errno);
    else CHECK(errno == 123);
    errno = 123;
    return !block;
}

/* Evaluates the call again if it is refused: then it succeeds, unless refusals last. */
#define TRY(block, call)            \
    do {                            \
        errno = 123;                \
        block = (call);             \
        if (is_refused(block)) {    \
            block = (call);         \
            is_refused(block);      \
        }                           \
    } while (0)

static void fill(unsigned char *block, size_t size, unsigned char with) {
    if (block) memset(block, with, size);
}

static void holds(const unsigned char *block, size_t size, unsigned char what) {
    if (!block) return;
    for (size_t i = 0; i < size; i++) CHECK(block[i] == what);
}

static void give_back(void *block) {
    errno = 123;
    free(block);
    CHECK(errno == 123);
}

enum { SMALL = 1200 };

static size_t small_size(int i) { return 1 + (size_t)i * 7919 % 3000; }

static void small_blocks(unsigned char **blocks) {
    for (int i = 0; i < SMALL; i++) {
        TRY(blocks[i], malloc(small_size(i)));
        fill(blocks[i], small_size(i), i);
    }
    for (int i = 0; i < SMALL; i++) {
        int at = i * 7 % SMALL;
        holds(blocks[at], small_size(at), at);
        if (at % 3 == 0) {
            give_back(blocks[at]);
            TRY(blocks[at], malloc(small_size(at)));
            fill(blocks[at], small_size(at), at);
        }
    }
}

static void free_all(unsigned char **blocks) {
    for (int i = 0; i < SMALL; i++) {
        holds(blocks[i], small_size(i), i);
        give_back(blocks[i]);
    }
}

/* realloc that is refused leaves the block as it was. */
static void resized(void) {
    static const size_t sizes[] = {100, 50000, 300000, 2000000, 4000000, 700000, 9000000, 1000, 90000, 10};
    unsigned char *block, *moved, *wall = NULL;
    size_t size = 40;
    TRY(block, malloc(size));
    fill(block, size, 9);
    for (size_t i = 0; block && i < sizeof sizes / sizeof *sizes; i++) {
        size_t both = size < sizes[i] ? size : sizes[i];
        TRY(moved, realloc(block, sizes[i]));
        holds(moved ? moved : block, moved ? both : size, 9);
        if (moved) block = moved, size = sizes[i];
        fill(block, size, 9);
        /* The larger ones that follow cannot grow in place: their pages are moved. */
        if (size == 2000000) TRY(wall, malloc(300000));
    }
    give_back(wall);
    give_back(block);
}

static void zeroed(void) {
    static const size_t sizes[] = {20, 5000, 60000, 1000000, 9000000};
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            unsigned char *block;
            TRY(block, calloc(1, sizes[i]));
            holds(block, sizes[i], 0);
            fill(block, sizes[i], 0xaa);
            give_back(block);
        }
}

static void aligned(void) {
    for (size_t align = 16; align <= 4 << 20; align *= 4) {
        unsigned char *block;
        TRY(block, aligned_alloc(align, align * 2));
        CHECK(multiple_of(block, align));
        fill(block, align * 2, 3);
        holds(block, align * 2, 3);
        CHECK(malloc_usable_size(block) >= (block ? align * 2 : 0));
        give_back(block);
    }
}

static void *thread(void *blocks) {
    small_blocks(blocks);
    resized();
    return NULL;
}

enum { THREADS = 3 };

static void threads(void) {
    static unsigned char *blocks[THREADS][SMALL];
    pthread_t others[THREADS];
    int started[THREADS];
    for (int i = 0; i < THREADS; i++) {
        /* It allocates memory for the thread. */
        started[i] = !pthread_create(&others[i], NULL, thread, blocks[i]);
        if (!started[i]) note_refusal(ENOMEM);
    }
    for (int i = 0; i < THREADS; i++)
        if (started[i]) {
            CHECK(!pthread_join(others[i], NULL));
            free_all(blocks[i]);
        }
}

static void stacks(void) {
    int (*make)(size_t, neap_stack_t *) = dlsym(RTLD_DEFAULT, "neap_stack_alloc");
    void (*drop)(neap_stack_t *) = dlsym(RTLD_DEFAULT, "neap_stack_free");
    static neap_stack_t made[20];
    for (int i = 0; i < 20; i++) {
        int error = make(64 << 10, &made[i]);
        if (error) note_refusal(error), made[i].top = NULL;
        else fill((unsigned char *)made[i].top - 9000, 9000, i);
    }
    for (int i = 0; i < 20; i++)
        if (made[i].top) {
            holds((unsigned char *)made[i].top - 9000, 9000, i);
            drop(&made[i]);
        }
}

static void child(void) {
    static unsigned char *blocks[SMALL];
    small_blocks(blocks);
    zeroed();
    free_all(blocks);
}

static void forked(void) {
    int status;
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        child();
        exit(0);
    }
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

int main(void) {
    static unsigned char *blocks[SMALL];
    const char *word = getenv("REFUSALS");
    allowed = !word || !strcmp(word, "never") ? NEVER : !strcmp(word, "once") ? ONCE : EVER;
    small_blocks(blocks);
    resized();
    zeroed();
    aligned();
    threads();
    stacks();
    /* The purge thread works. */
    usleep(40000);
    forked();
    malloc_trim(0);
    zeroed();
    free_all(blocks);
    forked();
    printf("%d refused\n", refused);
    return 0;
}
