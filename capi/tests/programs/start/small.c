/* What a small process costs once it has allocated a block: prints its mappings, its writable
   private memory in KiB, the page faults so far, and what it wrote of its own memory in KiB. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* Counted first: what follows allocates. */
static long faults_so_far(void) {
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? usage.ru_minflt : -1;
}

static long mappings(void) {
    long lines = 0;
    char line[4096];
    FILE *file = fopen("/proc/self/maps", "r");
    while (file && fgets(line, sizeof line, file)) lines++;
    return lines;
}

static long number(const char *path, const char *field) {
    char line[256];
    long found = -1;
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
        if (strncmp(line, field, strlen(field)) == 0) found = atol(line + strlen(field));
    return found;
}

int main(void) {
    char *volatile block = malloc(48);
    *block = 1;
    long faults = faults_so_far();
    long written = number("/proc/self/smaps_rollup", "Anonymous:");
    /* Some kernels do not tell. */
    printf("%ld %ld %ld %ld\n", mappings(), number("/proc/self/status", "VmData:"), faults, written < 0 ? 0 : written);
    return 0;
}
