// An array deleted as an object: the compiler states the size of one element.
#include "misuse.h"
#include <new>

int main() {
    operator delete(operator new[](40), 4); /* HERE */
    surface();
}
