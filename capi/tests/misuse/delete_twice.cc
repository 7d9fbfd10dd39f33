// A second delete, for which the compiler states the size.
#include "misuse.h"

struct Object {
    char text[50];
};

int main() {
    Object *volatile object = new Object;
    delete object;
    delete object; /* HERE */
    surface();
}
