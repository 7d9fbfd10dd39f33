/* malloc_trim(0) gives back every page that holds nothing live, those between live blocks too, and
   tells whether it gave any. Run with a decay far longer than the test. */
#include "../purge/purge.h"
#include <malloc.h>

/* One block of 32 stays: pages of 4 KiB hold four. */
enum { STAYS = 32 };

int main(void) {
    CHECK(served_by_neap("malloc"));
    size_t before = resident();
    fill_and_empty();
    CHECK(malloc_trim(0) == 1);
    CHECK(resident() <= before + ALLOWANCE);
    struct block *list = fill(FILLED), *kept = NULL;
    size_t full = resident();
    CHECK(full >= before + FILLED);
    for (size_t number = 0; list; number++) {
        struct block *next = list->next;
        if (number % STAYS == 0) list->next = kept, kept = list;
        else free(list);
        list = next;
    }
    CHECK(malloc_trim(0) == 1);
    /* One page stays for each block that does. */
    size_t page = sysconf(_SC_PAGESIZE), left = FILLED / BLOCK / STAYS * page;
    CHECK(resident() <= before + left + ALLOWANCE);
    for (struct block *block = kept; block; block = block->next)
        CHECK(((unsigned char *)block)[BLOCK - 1] == 0x5a); /* live ones are as they were */
    empty(kept);
    CHECK(malloc_trim(0) == 1);
    CHECK(resident() <= before + ALLOWANCE);
    CHECK(malloc_trim(0) == 0); /* nothing is left */
    return 0;
}
