/* A program that frees little at a time never has a purge thread, though it frees much in the
   end. */
#include "purge.h"

int main(void) {
    CHECK(served_by_neap("malloc"));
    for (int turn = 0; turn < 200; turn++) {
        empty(fill(64 * BLOCK));
        CHECK(tasks() == 1);
        nap(5);
        CHECK(tasks() == 1);
    }
    return 0;
}
