/* Advice that a program gives the kernel for its block does not hold for the block's next owner: a
   child of the next owner has its data. Argument 1: the bytes of a block; 2:
   "met", or "may-miss" if the addresses need not come back. */
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>

enum { PAGE = 4096, MOST = 256 };

static size_t size;
/* Where blocks are sampled, the addresses may come back much later. */
static int may_miss;

/* All whole pages of the block. */
static int advise(char *block, int advice) {
    uintptr_t from = ((uintptr_t)block + PAGE - 1) & -(uintptr_t)PAGE;
    uintptr_t to = ((uintptr_t)block + size) & -(uintptr_t)PAGE;
    return from < to ? madvise((void *)from, to - from, advice) : 0;
}

/* The flags of the mappings in which the block lies, as /proc/self/smaps has them. */
static int has_flag(const char *block, const char *flag) {
    FILE *maps = fopen("/proc/self/smaps", "re");
    char line[PATH_MAX + 128];
    unsigned long low = 0, high = 0;
    int found = 0;
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps)) {
        unsigned long start, end;
        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) low = start, high = end;
        int touches = low < (uintptr_t)block + size && (uintptr_t)block < high;
        if (touches && !strncmp(line, "VmFlags:", 8)) found |= strstr(line, flag) != NULL;
    }
    fclose(maps);
    return found;
}

static int overlaps(const char *one, const char *other) {
    return one < other + size && other < one + size;
}

/* Blocks are taken until the advised one's addresses have come back. */
static void next_owner(char *before, const char *flag) {
    char *blocks[MOST];
    int count = 0, met = 0;
    while (!met && count < MOST) {
        char *block = blocks[count++] = malloc(size);
        CHECK(block != NULL);
        memset(block, 2, size);
        met = overlaps(block, before);
        CHECK(!met || !has_flag(block, flag));
    }
    CHECK(met || may_miss);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < count; i++)
            for (size_t at = 0; at < size; at += 64) CHECK(blocks[i][at] == 2);
        _exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    while (count > 0) free(blocks[--count]);
}

int main(int count, char **arguments) {
    static const struct {
        int advice;
        const char *flag;
    } all[] = {
        {MADV_DONTFORK, " dc"},
        {MADV_WIPEONFORK, " wf"},
        {MADV_DONTDUMP, " dd"},
        {MADV_MERGEABLE, " mg"},
    };
    CHECK(count == 3 && served_by_neap("madvise"));
    may_miss = !strcmp(arguments[2], "may-miss");
    size = strtoul(arguments[1], NULL, 10);
    for (size_t at = 0; at < sizeof all / sizeof *all; at++)
        for (int round = 0; round < 3; round++) {
            char *block = malloc(size);
            CHECK(block != NULL);
            memset(block, 1, size);
            /* A kernel may lack what merges pages. */
            int answer = advise(block, all[at].advice);
            CHECK(answer == 0 || errno == EINVAL);
            CHECK(answer != 0 || has_flag(block, all[at].flag));
            free(block);
            next_owner(block, all[at].flag);
        }
    return 0;
}
