/* No more free bytes stay resident than NEAP_LIMIT_DIRTY, argument 1, says: at once, whatever the
   decay. */
#include "../purge/purge.h"

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("malloc"));
    size_t most = strtoul(arguments[1], NULL, 10), before = resident();
    for (int turn = 0; turn < 3; turn++) {
        fill_and_empty();
        void *one = malloc(100000);
        CHECK(one && resident() <= before + most + ALLOWANCE);
        free(one);
        void *large = malloc(FILLED);
        CHECK(large);
        memset(large, 0x5a, FILLED);
        free(large);
        CHECK((one = malloc(100000)) && resident() <= before + most + ALLOWANCE);
        free(one);
    }
    return 0;
}
