// Nothing here but operator new needs the function that throws std::bad_alloc.
#include <cstddef>
#include <cstdint>
#include <new>

int main() {
    volatile std::size_t enormous = SIZE_MAX / 4;
    try {
        ::operator delete(::operator new(enormous));
    } catch (const std::bad_alloc &) {
        return 0;
    }
    return 1;
}
