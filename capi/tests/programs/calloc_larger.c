/* Where a size class has run out, calloc gives a block of a larger class. All bytes that
   malloc_usable_size tells of it are zero. Runs under a limit on address space. */
#include "check.h"
#include <malloc.h>
#include <time.h>

enum { LARGER = 1000, SMALL = 100, EVERY = 64, MOST = 1 << 20 };

static unsigned char *larger[MOST];

/* Uses up what is left, in blocks of one size. Returns how many. */
static int take_all(size_t size, unsigned char **blocks) {
    unsigned char *block;
    int count = 0;
    while ((block = malloc(hidden(size))) != NULL) {
        memset(block, 0xff, malloc_usable_size(block));
        if (blocks) {
            CHECK(count < MOST);
            blocks[count] = block;
        }
        count++;
    }
    return count;
}

/* Refused requests gather free memory again after a while. */
static void wait_a_moment(void) {
    nanosleep(&(struct timespec){0, 200000000}, NULL);
}

int main(void) {
    CHECK(served_by_neap("calloc"));
    int count = take_all(LARGER, larger);
    CHECK(count > 4 * EVERY);
    wait_a_moment();
    take_all(SMALL, NULL);
    for (int i = 0; i < count; i += EVERY) free(larger[i]);
    wait_a_moment();
    int served = 0, from_larger = 0;
    unsigned char *block;
    while ((block = calloc(1, hidden(SMALL))) != NULL) {
        size_t usable = malloc_usable_size(block);
        for (size_t at = 0; at < usable; at++) CHECK(block[at] == 0);
        served++;
        from_larger += usable >= LARGER;
    }
    CHECK(served > 0 && from_larger > 0);
    return 0;
}
