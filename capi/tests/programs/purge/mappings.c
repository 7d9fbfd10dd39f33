/* A program fills huge pages with small blocks and frees half of every second one. What it freed
   goes home, and the process stays within few mappings, though the kernel parts one wherever advice
   changes. Arguments: MiB of small blocks; "mixed" to have large blocks among them. */
#include "purge.h"

enum { MOST_MAPPINGS = 300, SIZE = 1024, HUGE = 2 * MIB };

static size_t page;

static int mappings(void) {
    char text[4096];
    int lines = 0;
    int file = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0);
    for (ssize_t length; (length = read(file, text, sizeof text)) > 0;)
        for (ssize_t i = 0; i < length; i++) lines += text[i] == '\n';
    close(file);
    return lines;
}

static int is_freed(const char *block) {
    return (uintptr_t)block / HUGE & (uintptr_t)block / page & 1;
}

int main(int argc, char **argv) {
    CHECK(argc == 3 && served_by_neap("malloc"));
    size_t bytes = strtoul(argv[1], NULL, 10) << 20;
    page = (size_t)sysconf(_SC_PAGESIZE);
    int mixed = !strcmp(argv[2], "mixed");
    char *kept = NULL, *freed = NULL;
    size_t goes = 0;
    for (size_t made = 0; made < bytes; made += SIZE) {
        char *block = malloc(SIZE);
        CHECK(block != NULL);
        char **list = is_freed(block) ? &freed : &kept;
        if (list == &freed) goes += SIZE;
        *(char **)block = *list;
        *list = block;
        if (mixed && made % (4 * MIB) == 0) CHECK(malloc(3 * MIB / 2) != NULL);
    }
    CHECK(mappings() <= MOST_MAPPINGS);
    size_t full = resident();
    while (freed) {
        char *next = *(char **)freed;
        free(freed);
        freed = next;
    }
    for (int waited = 0; resident() > full - goes / 8 * 7; waited += 100) {
        if (waited >= 2 * PATIENCE_MS)
            dprintf(2, "%zu of %zu bytes resident, %zu freed\n", resident(), full, goes);
        CHECK(waited < 2 * PATIENCE_MS);
        nap(100);
        free(malloc(SIZE));
    }
    dprintf(1, "%d mappings\n", mappings());
    CHECK(mappings() <= MOST_MAPPINGS);
    /* What stayed is what it was. */
    for (char *block = kept; block; block = *(char **)block) CHECK(!is_freed(block));
    return 0;
}
