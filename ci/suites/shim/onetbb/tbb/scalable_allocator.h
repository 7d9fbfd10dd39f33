/* Replaces oneTBB's header: maps its names to the standard functions. */
#ifndef SCALABLE_ALLOCATOR_SHIM
#define SCALABLE_ALLOCATOR_SHIM
#include <errno.h>
#include <malloc.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { TBBMALLOC_OK, TBBMALLOC_INVALID_PARAM, TBBMALLOC_UNSUPPORTED, TBBMALLOC_NO_MEMORY,
       TBBMALLOC_NO_EFFECT };
enum { TBBMALLOC_USE_HUGE_PAGES, TBBMALLOC_SET_SOFT_HEAP_LIMIT, TBBMALLOC_SET_HUGE_SIZE_THRESHOLD };
enum { TBBMALLOC_CLEAN_ALL_BUFFERS, TBBMALLOC_CLEAN_THREAD_BUFFERS };

static inline void *scalable_malloc(size_t size) { return malloc(size); }
static inline void *scalable_calloc(size_t count, size_t size) { return calloc(count, size); }
static inline void *scalable_realloc(void *block, size_t size) { return realloc(block, size); }
static inline void scalable_free(void *block) { free(block); }
static inline size_t scalable_msize(void *block) { return malloc_usable_size(block); }
static inline int scalable_posix_memalign(void **out, size_t align, size_t size) {
    return posix_memalign(out, align, size);
}
/* oneTBB refuses an alignment that is no power of two, and a size of 0. */
static inline void *scalable_aligned_malloc(size_t size, size_t align) {
    if (align == 0 || (align & (align - 1)) != 0 || size == 0) {
        errno = EINVAL;
        return NULL;
    }
    return memalign(align, size);
}
static inline void scalable_aligned_free(void *block) { free(block); }
static inline void *scalable_aligned_realloc(void *block, size_t size, size_t align) {
    if (align == 0 || (align & (align - 1)) != 0) {
        errno = EINVAL;
        return NULL;
    }
    if (size == 0 && block != NULL) {
        free(block);
        return NULL;
    }
    void *moved = memalign(align, size);
    size_t had = malloc_usable_size(block);
    if (moved != NULL && block != NULL) {
        memcpy(moved, block, had < size ? had : size);
        free(block);
    }
    return moved;
}
static inline int scalable_allocation_mode(int mode, intptr_t value) {
    return (void)mode, (void)value, TBBMALLOC_OK;
}
static inline int scalable_allocation_command(int command, void *argument) {
    if (argument != NULL)
        return TBBMALLOC_INVALID_PARAM;
    malloc_trim(0);
    return command == TBBMALLOC_CLEAN_THREAD_BUFFERS ? TBBMALLOC_NO_EFFECT : TBBMALLOC_OK;
}
#ifdef __cplusplus
#include <memory>
namespace tbb {
template <typename T> using scalable_allocator = std::allocator<T>;
}
#endif
#endif
