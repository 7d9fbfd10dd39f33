// A size of the block's class that is not the block's.
#include "misuse.h"
#include <new>

int main() {
    operator delete(operator new(60), 59); /* HERE */
    surface();
}
