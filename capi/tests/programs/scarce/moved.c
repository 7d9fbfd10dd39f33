/* Lowers the limit on address space below what is mapped, and resizes large blocks within what was
   mapped before. Prints nothing. */
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { MIB = 1 << 20 };

int main(void) {
    char *low = malloc(4 * MIB), *between = malloc(4 * MIB), *room = malloc(32 * MIB);
    if (!low || !between || !room)
        return 1;
    memset(low, 7, 4 * MIB);
    memset(between, 8, 4 * MIB);
    memset(room, 9, 32 * MIB);
    free(room);
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = 1 * MIB;
    if (setrlimit(RLIMIT_AS, &limit) != 0)
        return 2;
    char *high = realloc(low, 16 * MIB);
    char *kept = high ? high : low;
    return kept[0] == 7 && kept[4 * MIB - 1] == 7 && between[0] == 8 ? 0 : 3;
}
