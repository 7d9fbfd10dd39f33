/* A local variable. */
#include "misuse.h"

int main(void) {
    long local[8] = {0};
    void *moved = realloc(local, 200); /* HERE */
    surface();
    return moved == NULL;
}
