/* malloc, calloc, realloc, free and their relatives, as glibc 2.36 behaves. */
#include "check.h"
#include <malloc.h>

void cfree(void *block);
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void __libc_free(void *block);
void *__libc_memalign(size_t align, size_t size);
void *__libc_valloc(size_t size);
void *__libc_pvalloc(size_t size);
int __posix_memalign(void **out, size_t align, size_t size);

static const size_t too_large = (size_t)PTRDIFF_MAX + 1;

static void zero_sizes_are_blocks_of_their_own(void) {
    void *a = malloc(0), *b = malloc(0), *c = calloc(0, 8), *d = calloc(8, 0);
    void *e = realloc(NULL, 0);
    CHECK(a && b && c && d && e);
    CHECK(a != b && b != c && c != d && d != e && a != e);
    free(a), free(b), free(c), free(d), free(e);
}

static void every_size_is_aligned_and_writable(void) {
    for (size_t size = 0; size < 70000; size += size < 2048 ? 1 : 977) {
        char *block = malloc(size);
        CHECK(block && multiple_of(block, 16));
        size_t usable = malloc_usable_size(block);
        CHECK(usable >= size);
        memset(block, 0xa5, usable);
        free(block);
    }
    CHECK(malloc_usable_size(NULL) == 0);
}

static void calloc_zeroes_what_was_dirty(void) {
    for (size_t size = 1; size < 3 << 20; size = size * 3 + 1) {
        char *dirty = malloc(size);
        memset(dirty, 0xff, size);
        free(dirty);
        char *block = calloc(1, size);
        for (size_t i = 0; i < size; i++) CHECK(block[i] == 0);
        free(block);
    }
}

static void too_much_is_enomem(void) {
    errno = 0, CHECK(!malloc(hidden(too_large)) && errno == ENOMEM);
    errno = 0, CHECK(!malloc(hidden(SIZE_MAX)) && errno == ENOMEM);
    errno = 0, CHECK(!malloc(hidden(PTRDIFF_MAX)) && errno == ENOMEM);
    errno = 0, CHECK(!calloc(hidden(SIZE_MAX), 2) && errno == ENOMEM);
    errno = 0, CHECK(!calloc(hidden(1) << 32, hidden(1) << 32) && errno == ENOMEM);
    errno = 0, CHECK(!realloc(NULL, hidden(too_large)) && errno == ENOMEM);
    errno = 0, CHECK(!reallocarray(NULL, hidden(SIZE_MAX) / 2, 3) && errno == ENOMEM);
    errno = 0, CHECK(!pvalloc(hidden(SIZE_MAX)) && errno == ENOMEM);
    errno = 0, CHECK(!valloc(hidden(too_large)) && errno == ENOMEM);
}

static void a_failed_realloc_leaves_the_block(void) {
    char *block = malloc(100);
    strcpy(block, "still here");
    errno = 0, CHECK(!realloc(block, hidden(too_large)) && errno == ENOMEM);
    errno = 0, CHECK(!reallocarray(block, hidden(SIZE_MAX), 16) && errno == ENOMEM);
    CHECK(!strcmp(block, "still here"));
    free(block);
}

static void realloc_keeps_contents(void) {
    size_t length = 1;
    unsigned char *block = realloc(NULL, length);
    block[0] = 0;
    for (int step = 0; step < 60; step++) {
        size_t next = step % 3 == 2 ? length / 2 + 1 : length * 2 + 7;
        block = realloc(block, next);
        CHECK(block && multiple_of(block, 16) && malloc_usable_size(block) >= next);
        for (size_t i = 0; i < (next < length ? next : length); i++) CHECK(block[i] == i % 251);
        for (size_t i = 0; i < next; i++) block[i] = i % 251;
        length = next;
        if (length > 20 << 20) length = 5000, block = realloc(block, length);
    }
    block = reallocarray(block, 10, 10);
    for (size_t i = 0; i < 100; i++) CHECK(block[i] == i % 251);
    CHECK(realloc(block, 0) == NULL);
}

static void success_and_free_keep_errno(void) {
    errno = EDOM;
    for (size_t size = 1; size < 200u << 20; size *= 7) {
        void *block = malloc(size);
        free(block);
        block = calloc(size, 1);
        block = realloc(block, size * 3);
        free(block);
        free(aligned_alloc(4096, size));
    }
    free(NULL), cfree(NULL);
    CHECK(realloc(malloc(10), 0) == NULL);
    CHECK(malloc_usable_size(NULL) == 0);
    CHECK(errno == EDOM);
}

static void the_libc_names_are_the_same_heap(void) {
    free(__libc_malloc(10)), __libc_free(malloc(10)), cfree(malloc(10));
    char *zeros = __libc_calloc(10, 10);
    for (int i = 0; i < 100; i++) CHECK(zeros[i] == 0);
    free(__libc_realloc(zeros, 5000));
    void *block = __libc_memalign(256, 10);
    CHECK(multiple_of(block, 256)), free(block);
    CHECK(multiple_of(block = __libc_valloc(10), 4096)), free(block);
    CHECK(multiple_of(block = __libc_pvalloc(10), 4096)), free(block);
    CHECK(__posix_memalign(&block, 64, 10) == 0 && multiple_of(block, 64)), free(block);
    errno = 0, CHECK(!__libc_malloc(hidden(too_large)) && errno == ENOMEM);
}

int main(void) {
    static const char *const names[] = {"malloc", "calloc", "realloc", "free", "cfree",
        "reallocarray", "malloc_usable_size", "__libc_malloc", "__libc_free"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) CHECK(served_by_neap(names[i]));
    zero_sizes_are_blocks_of_their_own();
    every_size_is_aligned_and_writable();
    calloc_zeroes_what_was_dirty();
    too_much_is_enomem();
    a_failed_realloc_leaves_the_block();
    realloc_keeps_contents();
    success_and_free_keep_errno();
    the_libc_names_are_the_same_heap();
    return 0;
}
