/* While realloc moves the pages of a block, the limit on address space becomes lower, as if by
   another thread: the kernel unmaps the target of the move, then refuses the move. realloc returns
   NULL with ENOMEM or a copy, never memory that is not its own. */
#include "../check.h"
#include <malloc.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

enum { MIB = 1 << 20, PAGE = 4096 };

static const char *volatile armed;
static char *volatile taken;
static long (*next)(long, ...);

static void set_limit(unsigned long bytes) {
    struct rlimit64 limit = {bytes, RLIM64_INFINITY};
    CHECK(next(SYS_prlimit64, 0, RLIMIT_AS, &limit, NULL) == 0);
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
    long answer = next(SYS_mremap, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4]);
    int error = errno;
    CHECK(answer == -1 && error == ENOMEM);
    if (!strcmp(how, "raised")) set_limit(RLIM64_INFINITY);
    if (!strcmp(how, "taken")) {
        int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
        taken = (char *)next(SYS_mmap, arguments[4], (long)PAGE, (long)PROT_READ | PROT_WRITE, (long)kind, -1l, 0l);
        CHECK(taken == (char *)arguments[4]);
        memset(taken, 0x77, PAGE);
    }
    errno = error;
    return answer;
}

/* Stands in front of the C library's, which Neap calls. */
long syscall(long number, ...) {
    long arguments[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) arguments[i] = va_arg(list, long);
    va_end(list);
    if (!next) next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (armed && number == SYS_mremap && (arguments[3] & MREMAP_FIXED)) return refused_move(arguments);
    return next(number, arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], arguments[5]);
}

static void holds(const char *block, int value) {
    CHECK(block != NULL);
    for (int at = 0; at < 4 * MIB; at++) CHECK(block[at] == value);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    char *blocks[8], *block = NULL;
    for (int i = 0; i < 8; i++) CHECK((blocks[i] = malloc(4 * MIB)) != NULL);
    /* One that cannot grow where it is. */
    for (int i = 0; i < 8; i++)
        for (int k = 0; k < 8; k++)
            if (blocks[k] == blocks[i] + 4 * MIB) block = blocks[i];
    CHECK(block != NULL);
    memset(block, 7, 4 * MIB);
    armed = arguments[1];
    errno = 0;
    char *moved = realloc(block, hidden(8 * MIB));
    CHECK(armed == NULL); /* the pages were about to be moved */
    if (strcmp(arguments[1], "raised")) CHECK(moved == NULL && errno == ENOMEM);
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
