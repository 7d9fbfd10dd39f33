/* Takes the place of the libjemalloc.so.2 that Debian's redis-server is linked with. It has no
 * malloc, so the program's malloc is the preloaded library's, or without one glibc's. */
#include <errno.h>
#include <stddef.h>

int mallctl(const char *name, void *old, size_t *old_length, void *new, size_t new_length) {
    return ENOENT;
}

void malloc_stats_print(void (*write)(void *, const char *), void *opaque, const char *options) {}

/* Redis asks how large a block would be, to tell how much a copy would save. */
size_t nallocx(size_t size, int flags) { return size; }
