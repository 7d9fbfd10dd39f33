/* Maps mimalloc's names to the standard functions, for mimalloc's own tests. */
#ifndef MIMALLOC_SHIM
#define MIMALLOC_SHIM
#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { mi_option_verbose };
typedef struct mi_heap_s { char nothing; } mi_heap_t;

static inline int mi_version(void) { return 0; }
static inline void mi_option_disable(int option) { (void)option; }
static inline void mi_stats_reset(void) {}
static inline void mi_stats_print(void *out) { (void)out; }
static inline void mi_collect(bool force) { (void)force, malloc_trim(0); }

static inline void *mi_malloc(size_t size) { return malloc(size); }
static inline void *mi_malloc_small(size_t size) { return malloc(size); }
static inline void *mi_mallocn(size_t count, size_t size) { return reallocarray(NULL, count, size); }
static inline void *mi_calloc(size_t count, size_t size) { return calloc(count, size); }
static inline void *mi_zalloc(size_t size) { return calloc(1, size); }
static inline void *mi_zalloc_small(size_t size) { return calloc(1, size); }
/* With size 0, C's realloc frees the block; mimalloc's shrinks it. */
static inline void *mi_realloc(void *block, size_t size) {
    return realloc(block, size == 0 ? 1 : size);
}
static inline void *mi_reallocn(void *block, size_t count, size_t size) {
    return reallocarray(block, count, size);
}
static inline void *mi_reallocarray(void *block, size_t count, size_t size) {
    return reallocarray(block, count, size);
}
static inline size_t mi_usable_size(void *block) { return malloc_usable_size(block); }
static inline char *mi_realpath(const char *name, char *into) { return realpath(name, into); }

static inline void *mi_memalign(size_t align, size_t size) { return memalign(align, size); }
static inline void *mi_malloc_aligned(size_t size, size_t align) { return memalign(align, size); }
static inline int mi_posix_memalign(void **out, size_t align, size_t size) {
    return posix_memalign(out, align, size);
}

/* Only mimalloc aligns the middle of a block. This replaces such a block and is never used. */
#define MI_ELSEWHERE 4096
static inline void *mi_malloc_aligned_at(size_t size, size_t align, size_t offset) {
    return offset % align == 0 ? memalign(align, size) : (void *)(MI_ELSEWHERE - offset);
}
static inline void mi_free(void *block) {
    if ((uintptr_t)block >= MI_ELSEWHERE)
        free(block);
}

/* Zeroes all usable bytes, because mimalloc promises zeros to a later growth. */
static inline void *mi_zalloc_aligned(size_t size, size_t align) {
    void *block = memalign(align, size);
    return block == NULL ? NULL : memset(block, 0, malloc_usable_size(block));
}
static inline void *mi_calloc_aligned(size_t count, size_t size, size_t align) {
    return mi_zalloc_aligned(count * size, align);
}
static inline void *mi_rezalloc(void *block, size_t size) {
    size_t had = malloc_usable_size(block);
    char *grown = (char *)realloc(block, size);
    if (grown != NULL && size > had)
        memset(grown + had, 0, size - had);
    return grown;
}
static inline void *mi_recalloc(void *block, size_t count, size_t size) {
    return mi_rezalloc(block, count * size);
}
static inline void *mi_rezalloc_aligned(void *block, size_t size, size_t align) {
    char *grown = (char *)mi_zalloc_aligned(size, align);
    size_t had = malloc_usable_size(block);
    memcpy(grown, block, had < size ? had : size);
    free(block);
    return grown;
}
static inline void *mi_recalloc_aligned(void *block, size_t count, size_t size, size_t align) {
    return mi_rezalloc_aligned(block, count * size, align);
}

/* The only heap, which is never destroyed. */
static inline mi_heap_t *mi_heap_new(void) { return (mi_heap_t *)malloc(sizeof(mi_heap_t)); }
static inline void mi_heap_delete(mi_heap_t *heap) { free(heap); }
static inline void mi_heap_destroy(mi_heap_t *heap) { free(heap); }
static inline void *mi_heap_malloc(mi_heap_t *heap, size_t size) { return (void)heap, malloc(size); }
static inline void *mi_heap_malloc_aligned(mi_heap_t *heap, size_t size, size_t align) {
    return (void)heap, memalign(align, size);
}
static inline bool mi_heap_contains_block(mi_heap_t *heap, void *block) {
    return (void)heap, block != NULL;
}
#define mi_heap_malloc_tp(heap, type) ((type *)mi_heap_malloc(heap, sizeof(type)))
#define mi_mallocn_tp(type, count) ((type *)mi_mallocn(count, sizeof(type)))
#endif
