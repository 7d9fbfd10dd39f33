/* Proves the library's identity and does nothing else. */
#include "check.h"

int main(void) {
    CHECK(served_by_neap("malloc"));
    return 0;
}
