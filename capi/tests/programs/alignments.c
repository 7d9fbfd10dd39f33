/* memalign, posix_memalign, aligned_alloc, valloc, pvalloc; alignments up to 1 GiB. */
#include "check.h"
#include <malloc.h>

static void posix_memalign_judges_its_alignment(void) {
    static const size_t bad[] = {0, 1, 2, 4, 3, 12, 24, 4097, SIZE_MAX};
    void *mark = &mark, *block = mark;
    errno = EDOM;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(posix_memalign(&block, hidden(bad[i]), 10) == EINVAL && block == mark);
    CHECK(errno == EDOM);
    static const size_t sizes[] = {SIZE_MAX, SIZE_MAX / 2};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        errno = EDOM;
        CHECK(posix_memalign(&block, 64, hidden(sizes[i])) == ENOMEM && block == mark);
        CHECK(errno == ENOMEM);
    }
    errno = EDOM;
    for (size_t align = sizeof(void *); align <= 1 << 20; align *= 2) {
        CHECK(posix_memalign(&block, align, 100) == 0 && multiple_of(block, align));
        free(block);
    }
    CHECK(errno == EDOM);
}

static void every_power_up_to_a_gib_and_many_sizes(void) {
    for (size_t align = 1; align <= (size_t)1 << 30; align *= 2) {
        for (size_t size = 0; size < 300000; size = size * 5 + 3) {
            char *block = aligned_alloc(align, size);
            CHECK(block && multiple_of(block, align) && multiple_of(block, 16));
            size_t usable = malloc_usable_size(block);
            CHECK(usable >= size);
            memset(block, 0x5a, usable);
            free(block);
        }
    }
}

static void many_aligned_blocks_do_not_overlap(void) {
    enum { COUNT = 200 };
    unsigned char *blocks[COUNT];
    for (int i = 0; i < COUNT; i++) {
        blocks[i] = memalign((size_t)16 << i % 10, i * 37 + 1);
        memset(blocks[i], i, i * 37 + 1);
    }
    for (int i = 0; i < COUNT; i++) {
        for (int k = 0; k <= i * 37; k++) CHECK(blocks[i][k] == (unsigned char)i);
        blocks[i] = realloc(blocks[i], i * 50 + 1);
        for (int k = 0; k <= i * 37; k++) CHECK(blocks[i][k] == (unsigned char)i);
    }
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

static void odd_alignments_are_rounded_up_or_refused(void) {
    static const size_t odd[] = {0, 3, 24, 100, 4097, 5000, SIZE_MAX};
    void *block = memalign(hidden(100), 10);
    CHECK(block && multiple_of(block, 128)), free(block);
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        errno = 0, CHECK(!aligned_alloc(hidden(odd[i]), 10) && errno == EINVAL);
    block = memalign(hidden(0), 10);
    CHECK(block && multiple_of(block, 16)), free(block);
    block = aligned_alloc(hidden(64), 65);
    CHECK(block && multiple_of(block, 64)), free(block);
}

static void impossible_ones_fail(void) {
    errno = 0, CHECK(!memalign(hidden(SIZE_MAX), 10) && errno == EINVAL);
    errno = 0, CHECK(!memalign(hidden(1) << 62, 10) && errno == ENOMEM);
    errno = 0, CHECK(!aligned_alloc(4096, hidden(SIZE_MAX)) && errno == ENOMEM);
    errno = 0, CHECK(!aligned_alloc(4096, hidden(SIZE_MAX / 2 - 100)) && errno == ENOMEM);
}

static void pages(void) {
    size_t page = sysconf(_SC_PAGESIZE);
    void *block = valloc(1);
    CHECK(block && multiple_of(block, page)), free(block);
    block = pvalloc(1);
    CHECK(block && multiple_of(block, page) && malloc_usable_size(block) >= page), free(block);
    block = pvalloc(page + 1);
    CHECK(block && multiple_of(block, page) && malloc_usable_size(block) >= 2 * page), free(block);
    block = pvalloc(0);
    CHECK(block && multiple_of(block, page)), free(block);
}

int main(void) {
    static const char *const names[] = {
        "memalign", "posix_memalign", "aligned_alloc", "valloc", "pvalloc"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) CHECK(served_by_neap(names[i]));
    posix_memalign_judges_its_alignment();
    every_power_up_to_a_gib_and_many_sizes();
    many_aligned_blocks_do_not_overlap();
    odd_alignments_are_rounded_up_or_refused();
    impossible_ones_fail();
    pages();
    return 0;
}
