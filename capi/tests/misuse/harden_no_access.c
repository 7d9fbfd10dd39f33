/* One access that no page is there for; the argument chooses it. Says "returned" if it went
   through. */
#include "misuse.h"
#include <string.h>

int main(int count, char **arguments) {
    if (count != 2) return 3;
    volatile char *large = malloc(5000), *nothing = malloc(0), *gone = malloc(100000);
    if (!large || !nothing || !gone || nothing == malloc(0)) return 3;
    free((void *)gone);
    switch (arguments[1][0]) {
    case 'p': large[8192] = 1; break;
    case 'b': large[-1] = 1; break;
    case 'n': *nothing = 1; break;
    case 'g': gone[50000] = 1; break;
    default: free((void *)nothing);
    }
    surface();
    return 0;
}
