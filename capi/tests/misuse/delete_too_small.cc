// A derived object deleted as its base, without a virtual destructor.
#include "misuse.h"
#include <new>

int main() {
    operator delete(operator new(64), 32); /* HERE */
    surface();
}
