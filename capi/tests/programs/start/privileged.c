/* A program that gains privileges at its start, linked to the library: options that would refuse it
   memory, end it or write files are ignored. */
#include "../check.h"
#include <sys/auxv.h>

enum { BYTES = 8 << 20, BLOCKS = 100000 };

int main(void) {
    static char *blocks[BLOCKS];
    if (getauxval(AT_SECURE) == 0) {
        dprintf(1, "SKIPPED: the file system ignores set-user-ID\n");
        return 77;
    }
    CHECK(served_by_neap("malloc") && geteuid() == 0 && getuid() != 0);
    char *large = malloc(BYTES);
    CHECK(large);
    memset(large, 1, BYTES);
    for (int i = 0; i < BLOCKS; i++) CHECK((blocks[i] = malloc(100)));
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    free(large);
    return 0;
}
