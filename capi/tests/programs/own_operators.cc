// A library with operators of its own, to which its calls are bound, gives away objects that the
// program deletes by the operators of the process.
// Argument 1: the library, this file compiled with -DPLUGIN.
#include "check.h"
#include <new>

#ifdef PLUGIN
#ifdef OWN
#include <cstdlib>
void *operator new(size_t size) { return malloc(size); }
void *operator new[](size_t size) { return malloc(size); }
void operator delete(void *block) noexcept { free(block); }
void operator delete[](void *block) noexcept { free(block); }
#endif

long *make(size_t count);
long *make(size_t count) { return count ? new long[count] : new long(7); }
#else
int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("_ZdlPvm"));
    void *library = dlopen(arguments[1], RTLD_NOW);
    CHECK(library);
    long *(*make)(size_t) = reinterpret_cast<long *(*)(size_t)>(dlsym(library, "_Z4makem"));
    CHECK(make);
    for (int round = 0; round < 1000; round++) {
        delete make(0);
        delete[] make(10);
        operator delete(make(0));
        operator delete[](make(3), size_t(24));
    }
    return 0;
}
#endif
