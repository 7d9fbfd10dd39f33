// Replaces operator new and delete, in two forms of twenty: the others must call these.
#include <cstdio>
#include <cstdlib>
#include <new>

static int news, deletes;

void *operator new(std::size_t bytes) {
    news++;
    if (void *block = std::malloc(bytes)) return block;
    throw std::bad_alloc();
}

void operator delete(void *block) noexcept {
    deletes++;
    std::free(block);
}

int main() {
    ::operator delete(::operator new(10), std::size_t{10});
    ::operator delete(::operator new(10, std::nothrow), std::nothrow);
    delete new int;
    std::printf("%d %d\n", news, deletes);
    return news == 3 && deletes == 3 ? 0 : 1;
}
