// A block of malloc, deleted.
#include "misuse.h"
#include <new>

int main() {
    operator delete(malloc(64)); /* HERE */
    surface();
}
