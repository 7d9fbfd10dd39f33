/* Blocks that the program maps over by whatever route give zeros again when they come back from
   calloc, the mapped file keeps its contents, and none of it deadlocks in a signal handler. The
   same for blocks so small that several share a slab. */
#include "check.h"
#include <malloc.h>
#include <signal.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/time.h>
#include <sys/wait.h>

#define SIZE (8ul << 20)
#define PAGE 4096ul
// In hardened mode a block without an alignment has guards, and its span is larger.
#define GUARDS (2ul << 16)

static int file;

static void *over_fixed(char *at, size_t bytes) {
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0);
}

static void *over_noreplace(char *at, size_t bytes) {
    CHECK(munmap(at, bytes) == 0);
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, file, 0);
}

static void *over_hint(char *at, size_t bytes) {
    CHECK(munmap(at, bytes) == 0);
    return mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
}

static void *over_mremap(char *at, size_t bytes) {
    void *elsewhere = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(elsewhere != MAP_FAILED);
    return mremap(elsewhere, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
}

static void *over_shmat(char *at, size_t bytes) {
    int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
    CHECK(id >= 0);
    char *attached = shmat(id, at, SHM_REMAP);
    CHECK(shmctl(id, IPC_RMID, NULL) == 0);
    if (attached == at) memset(attached, 0xa5, bytes);
    return attached;
}

// So many blocks are taken until most addresses of the freed one have come back.
#define MOST 64

static void comes_back_zero(void *(*over)(char *, size_t)) {
    for (int turn = 0; turn < 4; turn++) {
        char *block = aligned_alloc(65536, SIZE + GUARDS);
        CHECK(block != NULL);
        memset(block, 1, SIZE);
        CHECK(over(block + PAGE, SIZE / 2) == block + PAGE);
        free(block);
        char *again[MOST] = {0};
        size_t count = 0, met = 0;
        while (met < SIZE / 2 && count < MOST) {
            char *fresh = again[count++] = calloc(1, SIZE);
            CHECK(fresh != NULL);
            for (size_t at = 0; at < SIZE; at++)
                CHECK(fresh[at] == 0);
            memset(fresh, 2, SIZE);
            if (fresh < block + SIZE && block < fresh + SIZE)
                met += SIZE - (size_t)(fresh < block ? block - fresh : fresh - block);
        }
        CHECK(met >= SIZE / 2);
        while (count > 0) free(again[--count]);
        char text[PAGE];
        CHECK(pread(file, text, PAGE, 0) == (ssize_t)PAGE && text[0] == (char)0xa5);
    }
}

static void file_is_unchanged(size_t bytes) {
    static char text[1 << 16];
    CHECK(pread(file, text, bytes, 0) == (ssize_t)bytes);
    for (size_t at = 0; at < bytes; at++)
        CHECK(text[at] == (char)0xa5);
}

// Who gets the block next, and its neighbours, writes neither to the file nor to a child's memory.
static void small_block(void *(*over)(char *, size_t), size_t size) {
    enum { NEXT = 200 };
    char *next[NEXT], *block = aligned_alloc(PAGE, size), *beside = aligned_alloc(PAGE, size);
    CHECK(block && beside && malloc_usable_size(block) >= size);
    memset(beside, 3, size);
    CHECK(over(block, size) == block);
    CHECK((block[0] | block[size - 1]) == (char)0xa5);
    free(block);
    for (int i = 0; i < NEXT; i++) {
        CHECK((next[i] = i % 2 ? calloc(1, size) : aligned_alloc(PAGE, size)) != NULL);
        for (size_t at = 0; at < size && i % 2; at++)
            CHECK(next[i][at] == 0);
        memset(next[i], 2, size);
    }
    file_is_unchanged(size);
    for (size_t at = 0; at < size; at++)
        CHECK(beside[at] == 3);
    free(beside);
    for (int i = 0; i < NEXT; i++)
        free(next[i]);
}

static void small_blocks(void *(*over)(char *, size_t)) {
    for (size_t pages = 1; pages <= 8; pages++)
        for (int turn = 0; turn < 3; turn++)
            small_block(over, pages * PAGE);
}

// A block that is moved leaves what was mapped over it behind.
static void moved_small_block(void) {
    char *block = aligned_alloc(PAGE, 2 * PAGE);
    CHECK(block && over_fixed(block, PAGE) == block);
    block = realloc(block, 5 * PAGE);
    CHECK(block && block[0] == (char)0xa5);
    memset(block, 4, 5 * PAGE);
    file_is_unchanged(2 * PAGE);
    free(block);
}

// Where the kernel refuses to map afresh, no request gets the block.
static void refused_small_block(void) {
    struct rlimit before, none;
    char *block = aligned_alloc(PAGE, 2 * PAGE), *next[100];
    CHECK(block && over_fixed(block, 2 * PAGE) == block && getrlimit(RLIMIT_DATA, &before) == 0);
    none = before;
    none.rlim_cur = 1;
    CHECK(setrlimit(RLIMIT_DATA, &none) == 0);
    char *more = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = 77;
    free(block);
    CHECK(errno == 77 && setrlimit(RLIMIT_DATA, &before) == 0);
    // An emulator does not pass the limit on to the kernel.
    if (more != MAP_FAILED) return;
    for (int i = 0; i < 100; i++) {
        CHECK((next[i] = aligned_alloc(PAGE, 2 * PAGE)) != NULL && next[i] != block);
        memset(next[i], 5, 2 * PAGE);
    }
    file_is_unchanged(2 * PAGE);
    for (int i = 0; i < 100; i++)
        free(next[i]);
}

// A free beside a block that the program made inaccessible does not touch it.
static void inaccessible_beside(void) {
    enum { COUNT = 64 };
    char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++)
        CHECK((blocks[i] = aligned_alloc(PAGE, 2 * PAGE)) != NULL);
    for (int i = 0; i < COUNT; i += 2)
        CHECK(mmap(blocks[i], PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
              blocks[i]);
    for (int i = 1; i < COUNT; i += 2)
        free(blocks[i]);
    for (int i = 0; i < COUNT; i += 2)
        free(blocks[i]);
}

// A second free aborts although a mapping over a block of the same slab came between the two.
static void second_free(void) {
    char *blocks[2];
    for (int i = 0; i < 2; i++)
        CHECK((blocks[i] = aligned_alloc(PAGE, 2 * PAGE)) != NULL);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        CHECK(nowhere >= 0 && dup2(nowhere, 2) == 2);
        free(blocks[0]);
        CHECK(over_fixed(blocks[1], PAGE) == blocks[1]);
        free(blocks[0]);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status));
    CHECK(WTERMSIG(status) == SIGABRT);
    free(blocks[0]), free(blocks[1]);
}

static char *own;
static volatile int handled;

static void handler(int signal) {
    (void)signal;
    CHECK(mmap(own, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == own);
    handled++;
}

static void in_a_handler(void) {
    own = aligned_alloc(PAGE, SIZE);
    CHECK(own != NULL && signal(SIGALRM, handler) != SIG_ERR);
    struct itimerval often = {{0, 200}, {0, 200}};
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    while (handled < 500) {
        char *block = malloc(SIZE / 4);
        CHECK(block != NULL);
        free(block);
    }
    struct itimerval never = {{0, 0}, {0, 0}};
    CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
    free(own);
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    CHECK((file = memfd_create("over", MFD_CLOEXEC)) >= 0 && ftruncate(file, SIZE) == 0);
    char *contents = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    CHECK(contents != MAP_FAILED);
    memset(contents, 0xa5, SIZE);
    comes_back_zero(over_fixed);
    comes_back_zero(over_noreplace);
    comes_back_zero(over_hint);
    comes_back_zero(over_mremap);
    comes_back_zero(over_shmat);
    void *(*const ways[])(char *, size_t) = {over_fixed, over_noreplace, over_hint, over_mremap,
                                             over_shmat};
    for (int way = 0; way < 5; way++)
        small_blocks(ways[way]);
    moved_small_block();
    refused_small_block();
    second_free();
    inaccessible_beside();
    in_a_handler();
    return 0;
}
