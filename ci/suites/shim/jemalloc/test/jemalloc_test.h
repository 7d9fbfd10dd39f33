/* Replaces jemalloc's header of this name: maps jemalloc's names to the standard functions. */
#ifndef JEMALLOC_TEST_SHIM
#define JEMALLOC_TEST_SHIM
#ifdef __cplusplus
extern "C" {
#endif
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define LG_SIZEOF_PTR 3
#define SIZE_T_MAX SIZE_MAX
#define FMTd32 PRId32
#define FMTu32 PRIu32
#define FMTx32 PRIx32
#define FMTd64 PRId64
#define FMTu64 PRIu64
#define FMTx64 PRIx64
#define ZU(value) ((size_t)(value))
#define QU(value) ((uint64_t)(value))
#define JEMALLOC_FORMAT_PRINTF(at, first) __attribute__((format(printf, at, first)))
#define JEMALLOC_INLINE static inline
#define JEMALLOC_NOINLINE __attribute__((noinline))
#define JEMALLOC_DIAGNOSTIC_PUSH
#define JEMALLOC_DIAGNOSTIC_POP
#define JEMALLOC_DIAGNOSTIC_IGNORE_ALLOC_SIZE_LARGER_THAN
#define JEMALLOC_HAVE_PTHREAD_SETNAME_NP
#define TEST_MALLOC_SIZE malloc_usable_size
#define unlikely(condition) __builtin_expect(!!(condition), 0)
#define unreachable() abort()
#define not_reached() abort()
#define assert(condition) ((condition) ? (void)0 : abort())
#define BUFERROR_BUF 64

static inline int get_errno(void) { return errno; }
static inline void set_errno(int value) { errno = value; }
static inline int buferror(int error, char *into, size_t bytes) {
    return snprintf(into, bytes, "%s", strerror(error)), 0;
}
#define malloc_snprintf snprintf
#define malloc_printf(...) fprintf(stderr, __VA_ARGS__)
#define malloc_cprintf(writer, argument, ...) fprintf(stderr, __VA_ARGS__)
#define malloc_vcprintf(writer, argument, format, arguments) vfprintf(stderr, format, arguments)

/* Hooks inside jemalloc, which are never called. */
static void (*test_hooks_arena_new_hook)(void);
static void (*test_hooks_libc_hook)(void);

#define MALLOCX_LG_ALIGN(log) ((int)(log))
#define MALLOCX_ALIGN(align) (ffsl((long)(align)) - 1)
#define MALLOCX_ZERO 0x40
#define MALLOCX_TCACHE(cache) ((int)(((cache) + 2) << 8))
#define MALLOCX_TCACHE_NONE MALLOCX_TCACHE(-1)
#define MALLOCX_ARENA(arena) ((((int)(arena)) + 1) << 20)

static inline size_t shim_align(int flags) { return (size_t)1 << (flags & 0x3f); }

static inline void *mallocx(size_t size, int flags) {
    size_t align = shim_align(flags);
    if (size > PTRDIFF_MAX)
        return NULL;
    if (align <= 16)
        return flags & MALLOCX_ZERO ? calloc(1, size) : malloc(size);
    void *block = memalign(align, size);
    if (block != NULL && flags & MALLOCX_ZERO)
        memset(block, 0, malloc_usable_size(block));
    return block;
}
static inline size_t sallocx(void *block, int flags) {
    return (void)flags, malloc_usable_size(block);
}
static inline void dallocx(void *block, int flags) { (void)flags, free(block); }
static inline void sdallocx(void *block, size_t size, int flags) {
    if (malloc_usable_size(block) < size)
        abort();
    dallocx(block, flags);
}
/* The usable bytes that a block of this size would have. */
static inline size_t nallocx(size_t size, int flags) {
    void *block = mallocx(size, flags);
    size_t usable = block == NULL ? 0 : malloc_usable_size(block);
    free(block);
    return usable;
}
static inline void *rallocx(void *block, size_t size, int flags) {
    size_t had = malloc_usable_size(block), align = shim_align(flags);
    if (size > PTRDIFF_MAX)
        return NULL;
    char *moved = (char *)(align <= 16 ? realloc(block, size) : memalign(align, size));
    size_t has = moved == NULL ? 0 : malloc_usable_size(moved);
    if (moved != NULL && align > 16) {
        memcpy(moved, block, had < has ? had : has);
        free(block);
    }
    if (flags & MALLOCX_ZERO && has > had)
        memset(moved + had, 0, has - had);
    return moved;
}

/* Every value read is 0, except the sizes of large classes: 16 KiB, and the largest. */
static inline int shim_control(const char *name, size_t which, void *old, size_t *bytes) {
    size_t value = 0;
    if (!strcmp(name, "arenas.nlextents"))
        value = 2;
    if (!strcmp(name, "arenas.lextent.0.size"))
        value = which == 0 ? 16384 : PTRDIFF_MAX;
    if (!strcmp(name, "opt.percpu_arena"))
        value = (size_t) "disabled";
    if (!strcmp(name, "arena.0.purge"))
        malloc_trim(0);
    if (old != NULL)
        memset(old, 0, *bytes), memcpy(old, &value, *bytes < sizeof value ? *bytes : sizeof value);
    return 0;
}
static inline int mallctl(const char *name, void *old, size_t *bytes, void *value, size_t length) {
    return (void)value, (void)length, shim_control(name, 0, old, bytes);
}
static inline int mallctlnametomib(const char *name, size_t *mib, size_t *length) {
    return mib[0] = (size_t)name, *length = 4, 0;
}
static inline int mallctlbymib(const size_t *mib, size_t length, void *old, size_t *bytes,
                               void *value, size_t bytes_given) {
    (void)length, (void)value, (void)bytes_given;
    return shim_control((const char *)mib[0], mib[2], old, bytes);
}

#include "test/test.h"
#include "test/thd.h"
#ifdef __cplusplus
}
#endif
#endif
