/* Blocks with a predicted content: each chunk of 4 KiB is either written with the block's mark
   or must still read as zero. Every byte that calloc gave is compared before it is written,
   and at the latest before the block is freed. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>

enum { CHUNK = 4096 };

/* Counted over all threads and children: the page is shared with them. */
struct totals {
    atomic_ulong rounds, callocs, checked, children, attacks, refused;
};
static struct totals *totals;

static struct {
    unsigned long rounds, threads, seed, max_bytes, plant;
    int remap, no_children;
} options = {.rounds = 10000, .threads = 2, .seed = 1, .max_bytes = 64 << 20};

/* Bytes in this process's blocks. */
static atomic_size_t live;

/* splitmix64 */
static inline uint64_t mixed(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
    x = (x ^ x >> 27) * 0x94d049bb133111eb;
    return x ^ x >> 31;
}

static inline uint64_t draw(uint64_t *state) {
    return mixed(*state += 0x9e3779b97f4a7c15);
}

static inline uint64_t below(uint64_t *state, uint64_t bound) {
    return draw(state) % bound;
}

static inline int one_in(uint64_t *state, uint64_t chances) {
    return below(state, chances) == 0;
}

/* Spread evenly over the powers of two of [low, high]. */
static inline size_t spread(uint64_t *state, size_t low, size_t high) {
    size_t doublings = 63 - __builtin_clzl(high / low);
    size_t size = low << below(state, doublings + 1);
    size += below(state, size);
    return size < high ? size : high;
}

/* Mean about 1 MiB: half of the blocks are small, one in a hundred is huge. */
static inline size_t choose_size(uint64_t *state) {
    uint64_t chance = below(state, 100);
    size_t size = chance < 50   ? spread(state, 1, 64 << 10)
                  : chance < 93 ? spread(state, 64 << 10, 4 << 20)
                  : chance < 99 ? spread(state, 1 << 20, 16 << 20)
                                : spread(state, 16 << 20, 64 << 20);
    /* Whole pages and whole slices have no rest to be zeroed by hand: met more often than by
       chance. */
    if (size > 65536 && one_in(state, 3)) size &= one_in(state, 2) ? -65536ul : -4096ul;
    return live + size <= options.max_bytes ? size : 1 + size % 8192;
}

enum pattern { UNTOUCHED, READ_ONLY, FIRST, SCATTERED, SIXTEENTH, ALL, PATTERNS };

/* What a byte that was never written must be. */
enum rest { ZERO, UNKNOWN };

struct block {
    unsigned char *at;
    size_t size;  /* requested */
    size_t known; /* the first bytes, whose content is predicted */
    size_t stroke; /* bytes written of a chunk that the pattern covers */
    uint64_t salt;
    enum pattern pattern;
    enum rest rest;
    unsigned char mark; /* never zero */
    int checked;        /* every byte has been compared since calloc */
};

static inline int covered(const struct block *block, size_t chunk) {
    switch (block->pattern) {
    case FIRST: return chunk < 16;
    case SCATTERED: return mixed(block->salt + chunk) % 8 == 0;
    case SIXTEENTH: return chunk % 16 == 0;
    case ALL: return 1;
    default: return 0;
    }
}

static inline size_t smaller(size_t a, size_t b) {
    return a < b ? a : b;
}

/* What is mapped at an address: shows whose page it is. Without allocating. */
static void print_mapping(const void *address) {
    char text[4097];
    unsigned long low, high, at = (unsigned long)address;
    size_t held = 0;
    ssize_t more;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (maps >= 0 && (more = read(maps, text + held, sizeof text - 1 - held)) > 0) {
        char *line = text, *end;
        text[held += (size_t)more] = 0;
        for (; (end = strchr(line, '\n')) != NULL; line = end + 1)
            if (sscanf(line, "%lx-%lx", &low, &high) == 2 && low <= at && at < high)
                dprintf(2, "%.*s\n", (int)(end - line), line);
        held -= (size_t)(line - text);
        memmove(text, line, held);
    }
    if (maps >= 0) close(maps);
}

__attribute__((noreturn)) static void wrong(const struct block *block, size_t offset,
                                            unsigned expected) {
    dprintf(2,
            "torture: wrong byte 0x%02x, not 0x%02x, at %p: offset %zu of the block of %zu bytes "
            "at %p, pattern %d, seed %lu, pid %d\n",
            block->at[offset], expected, (void *)(block->at + offset), offset, block->size,
            (void *)block->at, (int)block->pattern, options.seed, (int)getpid());
    print_mapping(block->at + offset);
    abort();
}

/* Compares every byte: the first with the value, and each with its neighbour. */
static void expect(const struct block *block, size_t offset, size_t length, unsigned char value) {
    const unsigned char *bytes = block->at + offset;
    if (length == 0) return;
    atomic_fetch_add_explicit(&totals->checked, length, memory_order_relaxed);
    if (bytes[0] == value && !memcmp(bytes, bytes + 1, length - 1)) return;
    for (size_t i = 0; i < length; i++)
        if (bytes[i] != value) wrong(block, offset + i, value);
    dprintf(2, "torture: a byte of %p changed while it was read, seed %lu\n", (const void *)bytes,
            options.seed);
    abort();
}

/* All that is predicted of the block. */
static void verify(struct block *block) {
    for (size_t at = 0; at < block->known; at += CHUNK) {
        size_t length = smaller(CHUNK, block->known - at);
        size_t written = covered(block, at / CHUNK) ? smaller(block->stroke, length) : 0;
        expect(block, at, written, block->mark);
        if (block->rest == ZERO) expect(block, at + written, length - written, 0);
    }
    block->checked = 1;
}

/* Writes what the pattern covers, having compared it. */
static void paint(struct block *block) {
    for (size_t at = 0; at < block->known; at += CHUNK) {
        size_t length = smaller(CHUNK, block->known - at);
        if (!covered(block, at / CHUNK)) continue;
        if (block->rest == ZERO) expect(block, at, length, 0);
        memset(block->at + at, block->mark, smaller(block->stroke, length));
    }
    if (block->pattern == READ_ONLY && block->rest == ZERO)
        for (size_t at = 0; at < block->known; at += CHUNK) expect(block, at, 1, 0);
}

/* Spoils the calloc whose number was asked for, so that the check is checked. */
static void plant(struct block *block, uint64_t *state) {
    unsigned long number = atomic_fetch_add(&totals->callocs, 1) + 1;
    if (options.plant != 0 && number == options.plant)
        block->at[below(state, block->size)] = 0x5a;
}

static void *obtain(uint64_t *state, size_t size, enum rest rest) {
    if (rest == ZERO) return size % 3 ? calloc(1, size) : calloc(size / 3, 3);
    if (!one_in(state, 4)) return malloc(size);
    size_t align = 16ul << below(state, 14);
    return aligned_alloc(align, (size + align - 1) & -align);
}

/* A new block, painted; NULL where memory is refused. */
static struct block *take(uint64_t *state, size_t size, enum rest rest) {
    static const size_t strokes[] = {1, 64, CHUNK, CHUNK};
    struct block *block = malloc(sizeof *block);
    unsigned char *at = obtain(state, size, rest);
    if (!block || !at) {
        atomic_fetch_add(&totals->refused, 1);
        free(block), free(at);
        return NULL;
    }
    *block = (struct block){
        .at = at,
        .size = size,
        .known = size,
        .stroke = strokes[below(state, 4)],
        .salt = draw(state),
        .pattern = below(state, PATTERNS),
        .rest = rest,
        .mark = 1 + below(state, 255),
        .checked = rest == UNKNOWN,
    };
    atomic_fetch_add(&live, size);
    if (rest == ZERO) {
        plant(block, state);
        if (one_in(state, 3)) {
            enum pattern pattern = block->pattern;
            block->pattern = UNTOUCHED;
            verify(block);
            block->pattern = pattern;
        }
    }
    paint(block);
    return block;
}

/* What a caller learns of a block of another size: the common bytes stay, more are unknown. */
static void resize(struct block *block, size_t size, uint64_t *state) {
    if (!block->checked && size < block->known) verify(block);
    unsigned char *moved = realloc(block->at, size);
    if (!moved) {
        atomic_fetch_add(&totals->refused, 1);
        return;
    }
    atomic_fetch_add(&live, size - block->size);
    size_t before = block->size;
    block->at = moved;
    block->size = size;
    block->known = smaller(block->known, size);
    if (size > before && one_in(state, 2)) memset(moved + before, block->mark, size - before);
    if (one_in(state, 2)) verify(block);
}

#endif
