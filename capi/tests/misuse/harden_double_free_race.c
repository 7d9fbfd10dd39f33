/* Two threads free a block at once: both read its canary before one of them changes it. So that
   this happens in each run, the program puts the canary back before the second free. */
#include "misuse.h"

enum { ROUNDS = 50, PAIRS = 20000, HELD = 6000 };

int main(void) {
    static char *held[HELD];
    char *block = malloc(56);
    volatile long *canary = (volatile long *)(block + 56);
    long in_use = *canary;
    free(block);
    *canary = in_use;
    free(block);
    for (int round = 0; round < ROUNDS; round++) {
        for (int pair = 0; pair < PAIRS; pair++)
            free(malloc(56));
        for (int at = 0; at < HELD; at++)
            held[at] = malloc(56); /* HERE, at the latest */
        for (int at = 0; at < HELD; at++)
            free(held[at]);
    }
    surface();
}
