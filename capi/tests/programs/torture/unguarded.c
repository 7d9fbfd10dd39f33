/* What a library would be that asks without any guard: a calloc over the library's malloc that
   opens /proc/self/pagemap at the first need, never doubts a descriptor that answers, and zeroes
   just the pages that it calls populated. Preloaded before the library under test, it shows that
   the tests can fail. */
#include "descriptors.h"

/* Small blocks share pages: zeroed whole. */
enum { LEAST_ASKED = 256 << 10 };

static int pagemap = -1;

/* No answer: as if populated, and another descriptor for the next question. */
static int is_populated(const void *pages, size_t bytes) {
    if (pagemap < 0) pagemap = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    long answer = populated(pagemap, pages, bytes);
    if (answer < 0) pagemap = -1;
    return answer != 0;
}

static void zero_populated(char *block, size_t bytes) {
    char *low = (char *)(((uintptr_t)block + 4095) & -4096ul);
    char *high = (char *)(((uintptr_t)block + bytes) & -4096ul);
    memset(block, 0, low - block);
    memset(high, 0, block + bytes - high);
    if (!is_populated(low, high - low)) return;
    for (char *page = low; page < high; page += 4096)
        if (is_populated(page, 4096)) memset(page, 0, 4096);
}

void *calloc(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes)) {
        errno = ENOMEM;
        return NULL;
    }
    char *block = malloc(bytes);
    if (!block) return NULL;
    if (bytes < LEAST_ASKED)
        memset(block, 0, bytes);
    else
        zero_populated(block, bytes);
    return block;
}
