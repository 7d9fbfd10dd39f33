/* Enough frees in between that the first copy has left its magazine. */
#include "misuse.h"

int main(void) {
    static void *blocks[20000];
    for (int i = 0; i < 20000; i++) blocks[i] = malloc(64);
    for (int i = 0; i < 20000; i++)
        if (i % 8) free(blocks[i]); /* the others stay: no slab is given up */
    free(blocks[1]); /* HERE */
    surface();
}
