/* What programs may do goes on working in the hardened mode: each argument is a case. */
#include "check.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))

/* Two slices: what a block with an alignment of 64 KiB takes, which is not fenced, and a block of
   SIZE bytes with its guards, four pages behind it. */
#define SPAN ((size_t)131072)
#define SIZE (SPAN - 5 * PAGE)

static char *unfenced(void) {
    char *block = aligned_alloc(65536, SPAN);
    CHECK(block != NULL);
    return block;
}

/* A free writes nothing to a file that the program mapped over the block, and reads nothing. */
static void mapped_over_a_block(void) {
    char text[8] = "contents";
    int file = memfd_create("over", MFD_CLOEXEC);
    CHECK(file >= 0 && pwrite(file, text, 8, 0) == 8 && ftruncate(file, SPAN) == 0);
    for (int access = PROT_NONE; access <= (PROT_READ | PROT_WRITE); access++) {
        char *blocks[] = {unfenced(), malloc(SIZE)};
        for (int i = 0; i < 2; i++) {
            char *at = i == 0 ? blocks[i] : blocks[i] + PAGE;
            CHECK(mmap(at, PAGE, access, MAP_SHARED | MAP_FIXED, file, 0) == at);
            free(blocks[i]);
            CHECK(pread(file, text, 8, 0) == 8 && memcmp(text, "contents", 8) == 0);
        }
    }
}

/* The kernel gives no guards in locked pages: neither in the middle of a block that is freed ... */
static void locked_in_a_block(void) {
    char *block = malloc(SIZE);
    memset(block, 1, SIZE);
    CHECK(mlock(block + 2 * PAGE, PAGE) == 0);
    free(block);
}

/* ... nor behind a block, where an earlier one was locked. */
static void locked_behind_a_block(void) {
    char *block = unfenced();
    CHECK(mlock(block + SPAN - PAGE, PAGE) == 0);
    free(block);
    char *fenced = malloc(SIZE);
    CHECK(fenced > block && fenced < block + SPAN);
    memset(fenced, 1, SIZE);
    free(fenced);
    CHECK(unfenced() == block);
    memset(block, 1, SPAN);
    free(block);
}

/* A guard that is a mapping counts as writable again when it is taken away, and the process may
   have no more writable memory. */
static void no_writable_memory(void) {
    char *block = unfenced();
    CHECK(mlock(block, SPAN) == 0);
    free(block);
    char *fenced = malloc(SIZE);
    CHECK(fenced > block && fenced < block + SPAN);
    struct rlimit all, little;
    CHECK(getrlimit(RLIMIT_DATA, &all) == 0);
    // Not 0, which the kernel takes for no limit.
    little = (struct rlimit){PAGE, all.rlim_max};
    CHECK(setrlimit(RLIMIT_DATA, &little) == 0);
    free(fenced);
    CHECK(setrlimit(RLIMIT_DATA, &all) == 0);
    for (int i = 0; i < 8; i++)
        memset(unfenced(), 1, SPAN);
}

/* Requests of no bytes, aligned. */
static void no_bytes(void) {
    for (size_t align = sizeof(void *); align <= 1 << 20; align *= 2) {
        char *block = NULL, *other = aligned_alloc(align, 0);
        CHECK(posix_memalign((void **)&block, align, 0) == 0);
        CHECK(block && multiple_of(block, align) && other && multiple_of(other, align));
        CHECK(block != other);
        free(block), free(other);
    }
    CHECK(multiple_of(valloc(0), PAGE));
    char *block = realloc(calloc(0, 1), 100);
    memset(block, 1, 100);
    free(block);
}

/* Blocks do not come in the order of their addresses, and one that was freed seldom comes next. */
static void random_order(void) {
    enum { COUNT = 1000, TURNS = 4000 };
    static char *blocks[COUNT];
    static int drawn[65536 / 64];
    int orderly = 0, distinct = 0, again = 0;
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = malloc(56)) != NULL);
        ptrdiff_t step = i > 0 ? blocks[i] - blocks[i - 1] : 0;
        orderly += step == 64 || step == -64;
    }
    CHECK(orderly < COUNT / 8);
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
    char *last = NULL;
    for (int i = 0; i < TURNS; i++) {
        char *block = malloc(56);
        distinct += drawn[(uintptr_t)block % 65536 / 64]++ == 0;
        again += block == last;
        free(last = block);
    }
    CHECK(distinct >= 64 && again < TURNS / 32);
}

/* Whether the kernel may read the byte. */
static int is_readable(const char *at) {
    static int ends[2];
    char byte;
    if (!ends[1]) CHECK(pipe(ends) == 0);
    if (write(ends[1], at, 1) != 1) return 0;
    CHECK(read(ends[0], &byte, 1) == 1);
    return 1;
}

/* Whether there are guards without mappings. Linux before 6.13 has none, and neither have
   emulators. */
static int has_guards(void) {
    static int answer;
    if (!answer) {
        int flags = MAP_PRIVATE | MAP_ANONYMOUS;
        char *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
        CHECK(page != MAP_FAILED && is_readable(page));
        madvise(page, PAGE, 102 /* MADV_GUARD_INSTALL */);
        answer = is_readable(page) ? 1 : 2;
    }
    return answer == 2;
}

static int is_closed(const char *at) { return !has_guards() || !is_readable(at); }

static void check_between_guards(const char *block, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i += 509) CHECK(block[i] == (char)(i / 509 * 7 + seed));
    CHECK(is_closed(block - 1) && is_readable(block));
    CHECK(is_closed(block + malloc_usable_size((void *)block)));
}

static void fill(char *block, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i += 509) block[i] = (char)(i / 509 * 7 + seed);
}

/* A block between guards grows and shrinks in place, by moved pages and by copies. It keeps its
   contents and its guards, and what it leaves is not accessible. */
static void resized(void) {
    for (unsigned part = 2; part <= 16; part *= 2) {
        size_t size = 5000, count = 0;
        char *block = malloc(size);
        fill(block, size, part);
        while (size < (8u << 20)) {
            size_t before = size;
            char *old = block;
            block = realloc(block, size += size / part);
            CHECK(block != NULL);
            check_between_guards(block, before, part);
            CHECK(block == old || is_closed(old));
            CHECK(block == old || is_closed(old + before - 1));
            CHECK(block == old || is_closed(old - 1));
            fill(block, size, part);
            if (++count % 5 == 0) {
                block = realloc(block, size -= size / 3 / part);
                check_between_guards(block, size, part);
            }
        }
        block = realloc(block, 6000);
        check_between_guards(block, 6000, part);
        free(block);
        CHECK(is_closed(block));
    }
}

/* A large block shrinks, whatever block the new one is: one that the profiler sampled, or a guarded
   sample. */
static void shrunk(void) {
    for (size_t i = 0; i < 3000; i++) {
        char *block = malloc(200000);
        fill(block, 200000, (unsigned)i);
        block = realloc(block, 4090 + i * 13 % 3000);
        CHECK(block != NULL && block[509] == (char)(7 + i));
        free(block);
    }
}

/* A block shrinks although the process may have no more memory. */
static void shrunk_without_memory(void) {
    char *block = malloc(400000);
    fill(block, 400000, 3);
    struct rlimit all, little;
    CHECK(getrlimit(RLIMIT_DATA, &all) == 0);
    little = (struct rlimit){PAGE, all.rlim_max};
    CHECK(setrlimit(RLIMIT_DATA, &little) == 0);
    // Not for ever: an emulator ignores the limit.
    for (int i = 0; i < 1000 && malloc(100000); i++) {}
    for (size_t size = 150000; size > 4000; size /= 5) {
        block = realloc(block, size);
        CHECK(block != NULL && block[509] == (char)(7 + 3));
    }
    CHECK(setrlimit(RLIMIT_DATA, &all) == 0);
}

enum { FREED = 3000 };

/* Frees blocks of another thread. Returns which of them the first malloc returns. */
static void *first_after_frees(void *freed) {
    char **blocks = freed;
    for (size_t i = 0; i < FREED; i++) free(blocks[i]);
    char *first = malloc(56);
    for (size_t i = 0; i < FREED; i++)
        if (blocks[i] == first) return blocks + i;
    return NULL;
}

/* A thread that has only freed so far allocates a random block. */
static void random_after_frees(void) {
    static char *blocks[FREED];
    int early = 0;
    for (int turn = 0; turn < 8; turn++) {
        for (size_t i = 0; i < FREED; i++) blocks[i] = malloc(56);
        pthread_t thread;
        void *first;
        CHECK(pthread_create(&thread, NULL, first_after_frees, blocks) == 0);
        CHECK(pthread_join(thread, &first) == 0);
        early += first != NULL && (char **)first < blocks + 64;
    }
    CHECK(early < 4);
}

/* All memory that the process may have, and back. */
static void no_memory_left(void) {
    static char *blocks[1 << 20];
    for (int turn = 0; turn < 2; turn++) {
        size_t count = 0, most = sizeof blocks / sizeof *blocks;
        while (count < most && (blocks[count] = malloc(64 + count % 512))) {
            memset(blocks[count], 1, 64 + count % 512);
            count++;
        }
        CHECK(count < most);
        for (size_t i = 0; i < count; i++)
            free(blocks[i]);
    }
}

int main(int count, char **arguments) {
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {
        {"mapped", mapped_over_a_block},
        {"locked", locked_in_a_block},       {"behind", locked_behind_a_block},
        {"writable", no_writable_memory},    {"nothing", no_bytes},
        {"short", no_memory_left},           {"random", random_order},
        {"resized", resized},                {"shrunk", shrunk},
        {"kept", shrunk_without_memory},     {"frees", random_after_frees},
    };
    CHECK(served_by_neap("malloc") && count == 2);
    // With OS pages of 64 KiB nothing is fenced.
    if (PAGE > 16384) return 0;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        if (!strcmp(arguments[1], cases[i].name)) {
            cases[i].run();
            return 0;
        }
    return 2;
}
