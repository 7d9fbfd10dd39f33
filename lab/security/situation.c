/* Wrong steps in C. Written for this project, after the classes of errors that mimalloc-bench's
   security programs cover. */
#include "situation.h"
#include <alloca.h>

enum { FAR = 1 << 20, PAIRS = 262144, PAIRS_OF_LARGE = 16384, LARGE = 65536 };

static size_t size;

/* Many other requests of the size, each freed at once. */
static void pass_time(int pairs) {
    if (size > LARGE && pairs > PAIRS_OF_LARGE) pairs = PAIRS_OF_LARGE;
    while (pairs--) give_back(allocate(size));
}

/* Second frees. */

static void twice_at_once(void) {
    char *block = obtain(size);
    give_back(block);
    step();
    give_back(block);
    look_for_two_owners(size);
}

static void twice_around_another(void) {
    char *block = obtain(size), *other = obtain(size);
    give_back(block);
    give_back(other);
    step();
    give_back(block);
    look_for_two_owners(size);
}

static void twice_after_others(void) {
    char *block = obtain(size);
    give_back(block);
    pass_time(1024);
    step();
    give_back(block);
    look_for_two_owners(size);
}

static void twice_and_on(void) {
    char *block = obtain(size);
    give_back(block);
    step();
    give_back(block);
    pass_time(PAIRS);
    look_for_two_owners(size);
}

static void twice_with_a_new_owner(void) {
    char *block = obtain(size);
    give_back(block);
    char *second = obtain(size);
    step();
    give_back(block);
    give_back(second);
    look_for_two_owners(size);
}

/* Frees of what is no block's start. */

static void free_of(char *place, size_t bytes) {
    if (bytes) note_in_use(place, bytes);
    step();
    give_back(place);
    look_for_two_owners(size);
}

static void free_of_a_low_address(void) { free_of((char *)1, 0); }

static void free_of_an_array(void) {
    char array[size];
    memset(array, 1, size);
    free_of(array, size);
}

static void free_of_stack_memory(void) { free_of((char *)alloca(size), size); }

static void free_from_a_block(size_t distance) {
    char *block = obtain(size);
    note_in_use(block, size);
    free_of(block + distance, 0);
}

static void free_of_a_neighbour(void) { free_from_a_block(4096); }
static void free_far_away(void) { free_from_a_block((size_t)1 << 30); }
static void free_of_an_odd_address(void) { free_from_a_block(1); }
static void free_past_the_start(void) { free_from_a_block(8); }

/* Writes outside a block: by an assignment, with a free after it, and by memcpy. */

static void store_at(ptrdiff_t distance) {
    char *block = obtain(size);
    volatile char *place = block + distance;
    step();
    char changed = *place ^ 'A';
    *place = changed;
    give_back(block);
    end(HARM, "a byte outside the block was changed");
}

static void store_1_past(void) { store_at(size); }
static void store_32_past(void) { store_at(size + 31); }
static void store_far_past(void) { store_at(size - 1 + FAR); }
static void store_1_before(void) { store_at(-1); }
static void store_32_before(void) { store_at(-32); }
static void store_far_before(void) { store_at(-(ptrdiff_t)FAR); }

static void copy_at(ptrdiff_t distance, size_t bytes) {
    static const char zeros[4 * FAR];
    char *block = obtain(size);
    step();
    copy(block + distance, zeros, bytes);
    end(HARM, "bytes outside the block were overwritten");
}

static void copy_1_past(void) { copy_at(0, size + 1); }
static void copy_32_past(void) { copy_at(0, size + 32); }
static void copy_far_past(void) { copy_at(0, size + FAR); }
static void copy_1_before(void) { copy_at(-1, size); }
static void copy_32_before(void) { copy_at(-32, size); }
static void copy_far_before(void) { copy_at(-(ptrdiff_t)FAR, size); }

/* Writes to a block after its free. */

static void write_freed(void) {
    char *block = obtain(size);
    give_back(block);
    step();
    memset(block, 'A', size);
    end(HARM, "a freed block was written");
}

static void write_freed_and_on(void) {
    char *block = obtain(size);
    give_back(block);
    step();
    memset(block, 'A', size);
    pass_time(PAIRS);
    end(HARM, "a freed block was written, and many requests did not notice");
}

/* A freed block that the next request gets: what makes a use after the free worth it. */

static void reuse_by(const char *block, size_t bytes) {
    step();
    char *next = obtain(bytes);
    if (next == block) end(HARM, "the next request got the freed block");
    end(PREVENTED, "the next request got another block");
}

static void reuse_at_once(void) {
    char *block = obtain(size);
    give_back(block);
    reuse_by(block, size);
}

static void reuse_by_half(void) {
    char *block = obtain(size);
    give_back(block);
    reuse_by(block, size / 2);
}

static void reuse_of_moved(void) {
    char *block = obtain(size);
    char *pin = obtain(size);
    char *moved = (char *)resize(block, 128 * size);
    if (!moved || !pin) _exit(NOT_SET_UP);
    if (moved == block) end(PREVENTED, "the block grew where it is");
    reuse_by(block, size);
}

/* Old contents. */

static int finds_old(const volatile char *block) {
    for (size_t i = 0; i < size; i++)
        if (block[i] == 'A') return 1;
    return 0;
}

static void read_freed(void) {
    char *block = obtain(size);
    memset(block, 'A', size);
    give_back(block);
    step();
    if (finds_old(block)) end(HARM, "the contents of a freed block are readable");
    end(PREVENTED, "nothing is left of the contents");
}

static void read_new(void) {
    static char *blocks[4096];
    int count = size > LARGE ? 512 : 4096;
    for (int i = 0; i < count; i++) memset(blocks[i] = obtain(size), 'A', size);
    for (int i = 0; i < count; i++) give_back(blocks[i]);
    step();
    if (finds_old(obtain(size))) end(HARM, "a new block has the contents of a freed one");
    end(PREVENTED, "a new block has nothing of the freed ones");
}

/* Blocks of no bytes: of malloc, calloc and realloc. SIZE says which. */

static char *of_no_bytes(void) {
    switch (size) {
    case 0: return (char *)allocate(0);
    case 1: return (char *)allocate_zeroed(0, 16);
    default: return (char *)resize(NULL, 0);
    }
}

static void read_nothing(void) {
    volatile char *block = of_no_bytes();
    step();
    (void)*block;
    end(HARM, "a byte of a block of no bytes was read");
}

static void read_nothing_and_free(void) {
    volatile char *block = of_no_bytes();
    step();
    (void)*block;
    give_back((void *)block);
    end(HARM, "a byte of a block of no bytes was read");
}

static void write_nothing(void) {
    volatile char *block = of_no_bytes();
    step();
    *block = 'A';
    end(HARM, "a byte of a block of no bytes was written");
}

static void write_nothing_and_free(void) {
    volatile char *block = of_no_bytes();
    step();
    *block = 'A';
    give_back((void *)block);
    end(HARM, "a byte of a block of no bytes was written");
}

/* The rest. */

static void run_a_block(void) {
#if defined(__x86_64__)
    static const unsigned char come_back[] = {0xc3};
#elif defined(__aarch64__)
    static const unsigned char come_back[] = {0xc0, 0x03, 0x5f, 0xd6};
#else
#error "no instructions for this processor"
#endif
    char *block = obtain(size);
    memcpy(block, come_back, sizeof come_back);
    step();
    ((void (*)(void))(uintptr_t)block)();
    end(HARM, "code in a block was run");
}

static void ask_for_too_much(void) {
    step();
    if (allocate(SIZE_MAX - size)) end(HARM, "a request larger than memory got a block");
    end(PREVENTED, "a request larger than memory got none");
}

static const struct {
    const char *name;
    void (*carry_out)(void);
} kinds[] = {
    {"twice-at-once", twice_at_once},
    {"twice-around-another", twice_around_another},
    {"twice-after-others", twice_after_others},
    {"twice-and-on", twice_and_on},
    {"twice-with-a-new-owner", twice_with_a_new_owner},
    {"free-of-a-low-address", free_of_a_low_address},
    {"free-of-an-array", free_of_an_array},
    {"free-of-stack-memory", free_of_stack_memory},
    {"free-of-a-neighbour", free_of_a_neighbour},
    {"free-far-away", free_far_away},
    {"free-of-an-odd-address", free_of_an_odd_address},
    {"free-past-the-start", free_past_the_start},
    {"store-1-past", store_1_past},
    {"store-32-past", store_32_past},
    {"store-far-past", store_far_past},
    {"copy-1-past", copy_1_past},
    {"copy-32-past", copy_32_past},
    {"copy-far-past", copy_far_past},
    {"store-1-before", store_1_before},
    {"store-32-before", store_32_before},
    {"store-far-before", store_far_before},
    {"copy-1-before", copy_1_before},
    {"copy-32-before", copy_32_before},
    {"copy-far-before", copy_far_before},
    {"write-freed", write_freed},
    {"write-freed-and-on", write_freed_and_on},
    {"reuse-at-once", reuse_at_once},
    {"reuse-by-half", reuse_by_half},
    {"reuse-of-moved", reuse_of_moved},
    {"read-freed", read_freed},
    {"read-new", read_new},
    {"read-nothing", read_nothing},
    {"read-nothing-and-free", read_nothing_and_free},
    {"write-nothing", write_nothing},
    {"write-nothing-and-free", write_nothing_and_free},
    {"run-a-block", run_a_block},
    {"ask-for-too-much", ask_for_too_much},
};

int main(int count, char **arguments) {
    begin();
    if (count != 3) return NOT_SET_UP;
    size = strtoul(arguments[2], NULL, 10);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i].name, arguments[1])) kinds[i].carry_out();
    return NOT_SET_UP;
}
