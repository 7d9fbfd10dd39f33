/* Allocates and writes 50 MB in blocks of 1,000 bytes. Prints the process's resident memory, in
   KiB. */
#include "check.h"

static long resident_kib(void) {
    char line[200];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    CHECK(status != NULL);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmRSS: %ld", &kib);
    fclose(status);
    return kib;
}

int main(void) {
    static char *blocks[50000];
    for (int i = 0; i < 50000; i++) {
        blocks[i] = malloc(1000);
        CHECK(blocks[i] != NULL);
        memset(blocks[i], 1, 1000);
    }
    printf("%ld\n", resident_kib());
    return blocks[7][3] != 1;
}
