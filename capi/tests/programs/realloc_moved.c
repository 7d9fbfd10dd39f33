/* A large block that cannot grow in place has its pages moved: at no time are there two copies, as
   the growth of the most memory ever resident shows. That also holds for a block that was moved and
   then grew in place, for which the kernel has several mappings. Two buffers that grow in turns
   take a page fault for each of their pages, and few others. */
#include "check.h"
#include <sys/resource.h>

enum { BYTES = 64 << 20 };

static struct rusage usage(void) {
    struct rusage usage;
    CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
    return usage;
}

static void grow_in_turns(void) {
    char *buffers[2] = {NULL, NULL};
    size_t bytes[2] = {0, 0}, page = sysconf(_SC_PAGESIZE);
    long before = usage().ru_minflt;
    for (size_t next = 4096; next < BYTES; next += next / 4) {
        for (int i = 0; i < 2; i++) {
            CHECK((buffers[i] = realloc(buffers[i], next)));
            memset(buffers[i] + bytes[i], i + 1, next - bytes[i]);
            bytes[i] = next;
        }
    }
    long pages = (bytes[0] + bytes[1]) / page;
    CHECK(usage().ru_minflt - before < pages + pages / 8);
    for (int i = 0; i < 2; i++) {
        for (size_t at = 0; at < bytes[i]; at += 64)
            CHECK(buffers[i][at] == i + 1);
        free(buffers[i]);
    }
}

int main(void) {
    CHECK(served_by_neap("malloc"));
    char *block = malloc(BYTES), *wall = malloc(BYTES);
    CHECK(block && wall);
    memset(block, 1, BYTES);
    /* Under an emulator, its own memory counts as well. */
    long before = usage().ru_maxrss;
    block = realloc(block, 3ul * BYTES);
    CHECK(block && block[0] == 1 && block[BYTES - 1] == 1);
    CHECK(usage().ru_maxrss - before < BYTES / 2 / 1024);
    free(block);
    free(wall);
    grow_in_turns();
    return 0;
}
