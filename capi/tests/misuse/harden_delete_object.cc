// An array deleted as an object.
#include "misuse.h"
#include <new>

int main() {
    operator delete(operator new[](5000)); /* HERE */
    surface();
}
