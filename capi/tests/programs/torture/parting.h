/* What a program may do to the pages of a block before it frees it. */
#ifndef PARTING_H
#define PARTING_H

#include "blocks.h"
#include <sys/resource.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

struct pages {
    unsigned char *at;
    size_t bytes;
};

/* A random run of the pages that are the block's alone, on borders of `unit`. */
static struct pages some_pages(const struct block *block, size_t unit, uint64_t *state) {
    uintptr_t low = ((uintptr_t)block->at + unit - 1) & -unit;
    uintptr_t high = ((uintptr_t)block->at + block->size) & -unit;
    if (low >= high) return (struct pages){NULL, 0};
    size_t units = (high - low) / unit, first = below(state, units);
    size_t count = one_in(state, 3) ? units - first : 1 + below(state, units - first);
    return (struct pages){(unsigned char *)low + first * unit, count * unit};
}

/* Advice that leaves no mark on the mapping. */
static void advise_pages(struct block *block, uint64_t *state) {
    static const int advice[] = {MADV_DONTNEED, MADV_DONTNEED, MADV_FREE,
                                 MADV_FREE,     MADV_PAGEOUT,  MADV_POPULATE_WRITE};
    struct pages pages = some_pages(block, 4096, state);
    if (!pages.bytes) return;
    int chosen = advice[below(state, 6)];
    madvise(pages.at, pages.bytes, chosen);
    /* A page that was written again after MADV_FREE is one the kernel must keep. */
    if (chosen == MADV_FREE && one_in(state, 2))
        pages.at[below(state, pages.bytes)] = block->mark;
}

/* Advice that splits mappings: in slices, so that they do not run out. */
static void advise_mapping(struct block *block, uint64_t *state) {
    static const int advice[] = {MADV_MERGEABLE, MADV_UNMERGEABLE, MADV_HUGEPAGE, MADV_NOHUGEPAGE,
                                 MADV_COLLAPSE};
    struct pages pages = some_pages(block, 65536, state);
    if (pages.bytes) madvise(pages.at, pages.bytes, advice[below(state, 5)]);
}

/* Freed while still locked, now and then: MADV_DONTNEED fails on such pages. Seldom in all, since
   they can neither be purged nor swapped out. */
static int stays_locked(uint64_t *state) {
    enum { MOST = 16 };
    static atomic_int count;
    return one_in(state, 8) && count < MOST && atomic_fetch_add(&count, 1) < MOST;
}

static void lock_pages(struct block *block, uint64_t *state) {
    struct pages pages = some_pages(block, 65536, state);
    if (!pages.bytes || mlock(pages.at, smaller(pages.bytes, 256 << 10)) != 0) return;
    if (!stays_locked(state)) munlock(pages.at, smaller(pages.bytes, 256 << 10));
}

static void protect_pages(struct block *block, uint64_t *state) {
    struct pages pages = some_pages(block, 4096, state);
    struct rlimit data;
    /* Under a limit of writable memory, what is given up may not be had again. */
    if (!pages.bytes || getrlimit(RLIMIT_DATA, &data) != 0 || data.rlim_cur != RLIM_INFINITY)
        return;
    int protection = one_in(state, 2) ? PROT_NONE : PROT_READ;
    if (mprotect(pages.at, pages.bytes, protection) != 0) return;
    CHECK(mprotect(pages.at, pages.bytes, PROT_READ | PROT_WRITE) == 0);
}

/* Held while descriptors are in the making, and by those who close or replace descriptors. */
static pthread_mutex_t descriptors = PTHREAD_MUTEX_INITIALIZER;

/* A file in memory, every byte of it the mark; -1 where none can be had. */
static int marked_file(size_t bytes, unsigned char mark) {
    int file = memfd_create("torture", MFD_CLOEXEC);
    if (file < 0) return -1;
    unsigned char content[4096];
    memset(content, mark, sizeof content);
    for (size_t at = 0; at < bytes; at += sizeof content)
        if (pwrite(file, content, sizeof content, (off_t)at) != sizeof content) {
            close(file);
            return -1;
        }
    return file;
}

/* Maps something else over the pages, which stays there when the block is freed. */
static void remap_pages(struct block *block, uint64_t *state) {
    struct pages pages = some_pages(block, 4096, state);
    pages.bytes = smaller(pages.bytes, 256 << 10);
    if (!options.remap || !pages.bytes || pthread_mutex_trylock(&descriptors) != 0) return;
    int file = one_in(state, 4) ? -1 : marked_file(pages.bytes, block->mark);
    int kind = one_in(state, 2) ? MAP_SHARED : MAP_PRIVATE;
    if (file < 0) kind |= MAP_ANONYMOUS;
    void *mapped =
        mmap(pages.at, pages.bytes, PROT_READ | PROT_WRITE, kind | MAP_FIXED, file, 0);
    if (file >= 0) close(file);
    pthread_mutex_unlock(&descriptors);
    CHECK(mapped == pages.at || mapped == MAP_FAILED);
    if (mapped == pages.at && one_in(state, 2)) memset(mapped, block->mark, pages.bytes);
}

/* The pages that the pattern left alone and a check has read are given back: as if never read. */
static void forget_reading(struct block *block) {
    size_t chunks = block->known / CHUNK;
    for (size_t first = 0, next; first < chunks; first = next) {
        for (next = first; next < chunks && !covered(block, next); next++) continue;
        uintptr_t low = ((uintptr_t)block->at + first * CHUNK + 4095) & -4096ul;
        uintptr_t high = ((uintptr_t)block->at + next * CHUNK) & -4096ul;
        if (low < high) madvise((void *)low, high - low, MADV_DONTNEED);
        next += next == first;
    }
}

static void give_back(struct block *block, uint64_t *state) {
    static void (*const partings[])(struct block *, uint64_t *) = {
        advise_pages, advise_pages, advise_mapping, lock_pages, protect_pages, remap_pages};
    if (!block->checked || one_in(state, 4)) {
        verify(block);
        if (block->rest == ZERO && one_in(state, 2)) forget_reading(block);
    }
    if (one_in(state, 3)) partings[below(state, 6)](block, state);
    atomic_fetch_sub(&live, block->size);
    free(block->at);
    free(block);
}

#endif
