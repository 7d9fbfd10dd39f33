// The program replaces the two base operators alone, with a header before each block.
// The standard says that the sized, nothrow and array forms then call its own.
#include "check.h"
#include <new>

static const size_t mark = 0x6e656170;
static int live;

void *operator new(size_t size) {
    size_t *whole = static_cast<size_t *>(malloc(size + 16));
    if (!whole) throw std::bad_alloc();
    whole[0] = mark;
    live++;
    return whole + 2;
}

void operator delete(void *block) noexcept {
    if (!block) return;
    size_t *whole = static_cast<size_t *>(block) - 2;
    CHECK(whole[0] == mark);
    live--;
    free(whole);
}

int main() {
    CHECK(served_by_neap("_ZdlPvm") && served_by_neap("_ZnwmRKSt9nothrow_t"));
    CHECK(!served_by_neap("_Znwm") && !served_by_neap("_ZdlPv"));
    void *block = operator new(40);
    CHECK(live == 1);
    operator delete(block, 40);
    CHECK(live == 0);
    block = operator new(40, std::nothrow);
    CHECK(live == 1);
    operator delete(block);
    CHECK(live == 0);
    operator delete(operator new(40), std::nothrow);
    CHECK(live == 0);
    delete new long(5);
    delete[] new long[50];
    operator delete[](operator new[](40, std::nothrow), 40);
    CHECK(live == 0);
}
