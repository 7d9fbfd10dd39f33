/* A size that another class would have served. */
#include "misuse.h"

int main(void) {
    free_sized(small_block(), 10); /* HERE */
    surface();
}
