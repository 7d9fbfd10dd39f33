/* A program takes the size of its address space for what it uses, adds some MiB, and makes the sum
   its limit. It gets about as many MiB as it added, as under the C library's own malloc, and then
   NULL. */
#include "../check.h"
#include <pthread.h>
#include <sys/resource.h>

static const size_t mib = 1 << 20;

static size_t mapped(void) {
    char line[256];
    unsigned long kib = 0;
    FILE *status = fopen("/proc/self/status", "re");
    CHECK(status != NULL);
    while (kib == 0 && fgets(line, sizeof line, status)) sscanf(line, "VmSize: %lu kB", &kib);
    CHECK(fclose(status) == 0 && kib > 0);
    return kib << 10;
}

static void set_limit(rlim_t bytes) {
    struct rlimit limit = {bytes, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void *one_block(void *unused) {
    free(malloc(hidden(1000)));
    return unused;
}

/* How many blocks there are, at most 4,000. Frees them. */
static size_t count_blocks(size_t bytes) {
    static char *blocks[4000];
    size_t count = 0;
    errno = 0;
    while (count < 4000 && (blocks[count] = malloc(hidden(bytes))) != NULL) *blocks[count++] = 1;
    CHECK(count == 4000 || errno == ENOMEM);
    for (size_t i = 0; i < count; i++) free(blocks[i]);
    return count;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    size_t added = strtoul(arguments[1], NULL, 10);
    free(malloc(hidden(100)));
    set_limit(mapped() + added * mib);
    if (added >= 16) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, one_block, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
        /* The thread's stack takes 8 MiB, and stays. */
        for (int i = 0; i < 2; i++) {
            size_t blocks = count_blocks(mib);
            if (blocks + 16 + added / 16 < added || blocks > added) dprintf(2, "%zu MiB of %zu\n", blocks, added);
        }
    }
    size_t kib = count_blocks(100000) * 100;
    if (kib > (added + 4) << 10) dprintf(2, "%zu KiB of %zu MiB\n", kib, added);
    set_limit(RLIM_INFINITY);
    CHECK(count_blocks(mib) == 4000);
    /* A limit of another origin leaves room for threads and an eighth for each arena. */
    set_limit(512 * mib);
    CHECK(count_blocks(mib) > 100);
    return 0;
}
