/* A block that the program mapped over is freed while the process has no mapping left
   (vm.max_map_count): the kernel refuses to map it afresh, before it unmaps anything. The free
   keeps errno, and the memory stays usable. */
#include "check.h"
#include <sys/mman.h>

#define SIZE (16ul << 20)
#define PAGE 4096ul
/* Where the administrator raised the limit, it is out of reach. */
#define MOST 200000

static void *mappings[MOST];

/* Alternating access rights keep the kernel from merging neighbours. */
static size_t use_up_mappings(void) {
    size_t count = 0;
    while (count < MOST) {
        int access = count % 2 ? PROT_READ : PROT_NONE;
        void *page = mmap(NULL, PAGE, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (page == MAP_FAILED)
            break;
        mappings[count++] = page;
    }
    return count;
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    char *block = malloc(SIZE);
    CHECK(block != NULL);
    char *inside = (char *)(((uintptr_t)block + PAGE) & ~(PAGE - 1));
    int access = PROT_READ | PROT_WRITE, kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    CHECK(mmap(inside, SIZE / 2, access, kind, -1, 0) == inside);
    size_t count = use_up_mappings();
    if (count == MOST) {
        puts("skipped: more mappings than this test can use up");
        return 0;
    }
    errno = 1789;
    free(block);
    CHECK(errno == 1789);
    while (count > 0)
        CHECK(munmap(mappings[--count], PAGE) == 0);
    for (int turn = 0; turn < 8; turn++) {
        char *again = calloc(1, SIZE);
        CHECK(again != NULL);
        for (size_t at = 0; at < SIZE; at += 64)
            CHECK(again[at] == 0);
        memset(again, 1, SIZE);
        free(again);
    }
    return 0;
}
