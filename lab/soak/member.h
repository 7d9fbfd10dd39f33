// What the C programs of the soak share: blocks with a pattern, and the words to the lab.
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// A block that knows its size, filled with a byte that its stamp determines.
struct block {
    uint32_t bytes, stamp;
    unsigned char rest[];
};

static _Atomic uint64_t answers;

static inline void wrong(const char *what) {
    dprintf(2, "wrong: %s\n", what);
    abort();
}

static inline uint64_t next(uint64_t *seed) {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    return *seed ^= *seed << 17;
}

// Most blocks are small, a few are large.
static inline uint32_t some_bytes(uint64_t *seed) {
    uint64_t number = next(seed);
    unsigned shift = number % 100 < 90 ? 7 : number % 100 < 99 ? 12 : 17;
    return (uint32_t)(sizeof(struct block) + 1 + (number >> 32) % (1u << shift));
}

// NULL without memory.
static inline struct block *filled(uint64_t *seed) {
    uint32_t bytes = some_bytes(seed);
    struct block *made = malloc(bytes);
    if (made) {
        *made = (struct block){.bytes = bytes, .stamp = (uint32_t)next(seed)};
        memset(made->rest, (unsigned char)made->stamp, bytes - sizeof(struct block));
    }
    return made;
}

// Looks at the first, the last and a middle byte.
static inline void check(const struct block *block) {
    uint32_t count = block->bytes - sizeof(struct block);
    unsigned char is = (unsigned char)block->stamp;
    if (block->rest[0] != is || block->rest[count - 1] != is || block->rest[count / 2] != is)
        wrong("a block has other bytes than its owner wrote");
    answers++;
}

// Tells the lab how much was done, once a second, until standard input is closed.
static inline void tell_until_closed(void) {
    puts("work");
    fflush(stdout);
    struct pollfd input = {.fd = 0, .events = POLLIN};
    while (poll(&input, 1, 1000) <= 0) {
        printf("answers %llu\n", (unsigned long long)answers);
        fflush(stdout);
    }
}
