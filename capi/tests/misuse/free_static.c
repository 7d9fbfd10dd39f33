/* A static variable. */
#include "misuse.h"

int main(void) {
    static long variable[8];
    free(variable); /* HERE */
    surface();
}
