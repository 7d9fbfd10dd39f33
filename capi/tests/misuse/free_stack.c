/* A local variable. */
#include "misuse.h"

int main(void) {
    long local[8] = {0};
    free(local); /* HERE */
    surface();
}
