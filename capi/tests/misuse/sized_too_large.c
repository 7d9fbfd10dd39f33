/* A size that another class would have served. */
#include "misuse.h"

int main(void) {
    free_sized(malloc(64), 100); /* HERE */
    surface();
}
