// An array deleted as a larger one.
#include "misuse.h"
#include <new>

int main() {
    operator delete[](operator new[](64), 100); /* HERE */
    surface();
}
