/* A block that takes its pages over from a longer one keeps those that it can use, and no more of
   them. Argument 1: by what the others go. */
#include "purge.h"
#include <malloc.h>

enum { COUNT = 1200, LONGER = 65536, SHORTER = 34000 };

static unsigned char *blocks[COUNT];

static void fill_all(size_t bytes) {
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = malloc(bytes)));
        memset(blocks[i], i % 255 + 1, bytes);
    }
}

static void check_all(size_t bytes) {
    for (int i = 0; i < COUNT; i++)
        for (size_t at = 0; at < bytes; at += 512) CHECK(blocks[i][at] == i % 255 + 1);
}

static void free_all(void) {
    for (int i = 0; i < COUNT; i++) free(blocks[i]);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    int trims = !strcmp(arguments[1], "trim");
    size_t before = resident();
    fill_all(LONGER);
    free_all();
    fill_all(SHORTER);
    size_t usable = malloc_usable_size(blocks[0]);
    CHECK(usable >= SHORTER && usable <= LONGER); /* as many with pages of 64 KiB */
    goal = before + COUNT * usable + ALLOWANCE;
    if (trims) {
        CHECK(resident() - before >= (size_t)COUNT * LONGER); /* what was freed served again */
        malloc_trim(0);
        CHECK(at_goal());
    } else {
        CHECK(until(one_lives) && until(at_goal) && until(one_is_parked));
    }
    check_all(SHORTER);
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = realloc(blocks[i], LONGER)));
        memset(blocks[i] + SHORTER, i % 255 + 1, LONGER - SHORTER);
    }
    if (trims) malloc_trim(0);
    check_all(LONGER);
    /* A block that shrinks leaves pages, too. */
    for (int i = 0; i < COUNT; i++) CHECK((blocks[i] = realloc(blocks[i], SHORTER)));
    if (trims) {
        malloc_trim(0);
        CHECK(at_goal());
    }
    check_all(SHORTER);
    free_all();
    for (int i = 0; i < COUNT; i++) {
        CHECK((blocks[i] = calloc(1, LONGER)));
        for (size_t at = 0; at < LONGER; at += 512) CHECK(blocks[i][at] == 0);
    }
    free_all();
    return 0;
}
