/* a, b, a: seen before malloc gives the first copy of a out, so two owners never share it. */
#include "misuse.h"

int main(void) {
    void *a = small_block(), *b = small_block(), *taken[3];
    free(a);
    free(b);
    free(a); /* HERE */
    for (int i = 0; i < 3; i++) taken[i] = malloc(64);
    if (write(1, taken[0] == taken[2] ? "two owners\n" : "handed out\n", 11) != 11) _exit(2);
    return 0;
}
