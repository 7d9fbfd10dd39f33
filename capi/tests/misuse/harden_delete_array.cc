// An object deleted as an array.
#include "misuse.h"
#include <new>

int main() {
    operator delete[](operator new(64)); /* HERE */
    surface();
}
