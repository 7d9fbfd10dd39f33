/* While realloc moves the pages of a block, the limit on address space becomes lower, as if by
   another thread: the kernel unmaps the target of the move, then refuses the move. realloc returns
   NULL with ENOMEM or a copy, never memory that is not its own. */
#include "../own_calls.h"
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static const char *volatile armed;
static char *volatile taken;

static void set_limit(unsigned long bytes) {
    struct rlimit64 limit = {bytes, RLIM64_INFINITY};
    CHECK(next_syscall(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL) == 0);
}

static unsigned long mapped(void) {
    char text[128] = "";
    int file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && read(file, text, sizeof text - 1) > 0 && close(file) == 0);
    return strtoul(text, NULL, 10) * PAGE;
}

/* A move by MREMAP_FIXED that exceeds the limit. */
static long refused_move(const long *arguments) {
    const char *how = armed;
    armed = NULL;
    set_limit(mapped() - PAGE);
    long answer = passed(SYS_mremap, arguments);
    CHECK(answer == -ENOMEM);
    if (!strcmp(how, "raised")) set_limit(RLIM64_INFINITY);
    if (!strcmp(how, "taken")) {
        int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        taken = (char *)next_syscall(SYS_mmap, arguments[4], (long)PAGE, (long)PROT_READ | PROT_WRITE, (long)kind, -1l, 0l);
        CHECK(taken == (char *)arguments[4]);
        memset(taken, 0x77, PAGE);
    }
    return answer;
}

static long seen(long number, const long *arguments) {
    if (armed && number == SYS_mremap && (arguments[3] & MREMAP_FIXED)) return refused_move(arguments);
    return passed(number, arguments);
}

static void holds(const char *block, int value) {
    CHECK(block != NULL);
    for (int at = 0; at < 4 * MIB; at++) CHECK(block[at] == value);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    prepare_calls();
    char *blocks[8], *block = NULL;
    for (int i = 0; i < 8; i++) CHECK((blocks[i] = malloc(4 * MIB)) != NULL);
    /* One that cannot grow where it is. */
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++)
            if (blocks[k] == blocks[i] + 4 * MIB) block = blocks[i];
    CHECK(block != NULL);
    memset(block, 7, 4 * MIB);
    armed = arguments[1];
    watch_calls(1);
    errno = 0;
    char *moved = realloc(block, hidden(8 * MIB));
    int error = errno;
    watch_calls(0);
    CHECK(armed == NULL); /* the pages were about to be moved */
    if (strcmp(arguments[1], "raised")) CHECK(moved == NULL && error == ENOMEM);
    if (moved) block = moved;
    holds(block, 7);
    set_limit(RLIM64_INFINITY);
    for (int at = 0; taken && at < PAGE; at++) CHECK(taken[at] == 0x77);
    block = realloc(block, hidden(32 * MIB));
    holds(block, 7);
    for (int i = 0; i < 8; i++) {
        char *other = calloc(1, 8 * MIB);
        holds(other, 0);
        memset(other, 1, 8 * MIB);
        free(other);
    }
    for (int at = 0; taken && at < PAGE; at++) CHECK(taken[at] == 0x77);
    free(block);
    malloc_trim(0);
    return 0;
}
