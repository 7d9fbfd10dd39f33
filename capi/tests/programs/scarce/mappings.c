/* The process has as many mappings as it may before its first allocation: blocks are served all the
   same. The mappings are made by the program, or by a library whose constructor runs before Neap's
   (see mapper.c). Or a heap has them when it has grown, and doubles. */
#include "check.h"
#include <sys/mman.h>

enum { COUNT = 100 };

static void use_up_mappings(void) {
    for (int i = 0;; i++) {
        int access = i & 1 ? PROT_READ : PROT_NONE; /* neighbours do not merge */
        if (mmap(NULL, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) break;
    }
}

static void all_sizes_up_to(size_t most) {
    static void *blocks[COUNT];
    for (size_t size = 16; size <= most; size *= 2) {
        for (int i = 0; i < COUNT; i++) {
            blocks[i] = malloc(size);
            CHECK(blocks[i] != NULL);
            memset(blocks[i], 0x11, size);
        }
        for (int i = 0; i < COUNT; i++) free(blocks[i]);
    }
}

/* Blocks are hardly touched, and the mappings that the heap leaves are used up on the way. */
static void one_more_gigabyte(int leave) {
    for (int i = 0; i < 1000; i++) {
        char *block = malloc(1 << 20);
        CHECK(block != NULL);
        *block = 1;
        if (i % 64 == 0 && !leave) use_up_mappings();
    }
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    if (!strcmp(arguments[1], "program")) use_up_mappings();
    all_sizes_up_to(1 << 20);
    all_sizes_up_to(1 << 20);
    if (!strcmp(arguments[1], "grown")) {
        one_more_gigabyte(1);
        one_more_gigabyte(0);
    }
    return 0;
}
