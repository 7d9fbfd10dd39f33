/* Pages that slabs gave back count again when Neap hands out their blocks. The program fills each
   size class in turn and frees nearly all of it. Then it fills all classes again, up to NEAP_LIMIT
   and no further. Argument 1: the limit in bytes. */
#include "../purge/purge.h"
#include <malloc.h>
#include <sys/mman.h>

static const size_t sizes[] = {4096, 1024, 512, 2048, 256, 640, 1280, 768};
enum { CLASSES = sizeof sizes / sizeof *sizes };

static size_t limit, most;
static void **blocks[CLASSES];

/* Fills the gaps among the blocks of a class. Returns 0 at the limit. */
static int filled(int class) {
    for (size_t i = 0; i < limit / 2 / sizes[class]; i++) {
        if (blocks[class][i]) continue;
        errno = 0;
        if (!(blocks[class][i] = malloc(sizes[class]))) {
            CHECK(errno == ENOMEM);
            return 0;
        }
        memset(blocks[class][i], 0x5a, sizes[class]);
        if (i % 1024 == 0) CHECK(resident() <= most);
    }
    return 1;
}

/* Frees all blocks of a class except about one in 16 pages: with pages of 4 KiB, in each slab. */
static void thin(int class) {
    size_t apart = 16 * sysconf(_SC_PAGESIZE) / sizes[class];
    for (size_t i = 0; i < limit / 2 / sizes[class]; i++)
        if (i % apart) free(blocks[class][i]), blocks[class][i] = NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    limit = strtoul(arguments[1], NULL, 10);
    for (int class = 0; class < CLASSES; class++) {
        size_t bytes = limit / 2 / sizes[class] * sizeof(void *);
        blocks[class] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        CHECK(blocks[class] != MAP_FAILED);
    }
    most = resident() + limit + ALLOWANCE;
    for (int class = 0; class < CLASSES; class++) {
        CHECK(filled(class));
        thin(class);
        malloc_trim(0);
    }
    int last = 0;
    while (last < CLASSES && filled(last)) last++;
    CHECK(last < CLASSES && resident() <= most);
    /* Freed memory serves the same class, and another one. */
    thin(0);
    CHECK(filled(0));
    thin(0);
    CHECK(last == 0 || filled(last) || resident() + 8 * MIB >= most - ALLOWANCE);
    CHECK(resident() <= most);
    return 0;
}
