// All 20 replaceable operators, each called by its own name.
#include "check.h"
#include <malloc.h>
#include <new>

static const std::align_val_t wide = std::align_val_t(256);

static void *checked(void *block, size_t size, size_t align) {
    CHECK(block && multiple_of(block, align) && malloc_usable_size(block) >= size);
    memset(block, 0x77, malloc_usable_size(block));
    return block;
}

static void plain(size_t n) {
    operator delete(checked(operator new(n), n, 16));
    operator delete[](checked(operator new[](n), n, 16));
    operator delete(checked(operator new(n), n, 16), n);
    operator delete[](checked(operator new[](n), n, 16), n);
    operator delete(checked(operator new(n, std::nothrow), n, 16), std::nothrow);
    operator delete[](checked(operator new[](n, std::nothrow), n, 16), std::nothrow);
}

static void aligned(size_t n) {
    operator delete(checked(operator new(n, wide), n, 256), wide);
    operator delete[](checked(operator new[](n, wide), n, 256), wide);
    operator delete(checked(operator new(n, wide), n, 256), n, wide);
    operator delete[](checked(operator new[](n, wide), n, 256), n, wide);
    operator delete(checked(operator new(n, wide, std::nothrow), n, 256), wide, std::nothrow);
    operator delete[](checked(operator new[](n, wide, std::nothrow), n, 256), wide, std::nothrow);
}

static void every_alignment(size_t n) {
    for (size_t align = 1; align <= 1 << 20; align *= 2) {
        std::align_val_t value = std::align_val_t(align);
        operator delete(checked(operator new(n, value), n, align), n, value);
        operator delete[](checked(operator new[](n, value), n, align), n, value);
    }
}

static void null_may_be_deleted() {
    void *none = nullptr;
    operator delete(none), operator delete[](none);
    operator delete(none, 8), operator delete[](none, 8);
    operator delete(none, std::nothrow), operator delete[](none, std::nothrow);
    operator delete(none, wide), operator delete[](none, wide);
    operator delete(none, 8, wide), operator delete[](none, 8, wide);
    operator delete(none, wide, std::nothrow), operator delete[](none, wide, std::nothrow);
}

static void operators_and_c_share_a_heap() {
    free(operator new(100));
    operator delete(malloc(100));
}

int main() {
    static const char *const names[] = {"_Znwm", "_Znam", "_ZnwmRKSt9nothrow_t",
        "_ZnamRKSt9nothrow_t", "_ZnwmSt11align_val_t", "_ZnamSt11align_val_t",
        "_ZnwmSt11align_val_tRKSt9nothrow_t", "_ZnamSt11align_val_tRKSt9nothrow_t", "_ZdlPv",
        "_ZdaPv", "_ZdlPvm", "_ZdaPvm", "_ZdlPvRKSt9nothrow_t", "_ZdaPvRKSt9nothrow_t",
        "_ZdlPvSt11align_val_t", "_ZdaPvSt11align_val_t", "_ZdlPvmSt11align_val_t",
        "_ZdaPvmSt11align_val_t", "_ZdlPvSt11align_val_tRKSt9nothrow_t",
        "_ZdaPvSt11align_val_tRKSt9nothrow_t"};
    for (const char *name : names) CHECK(served_by_neap(name));
    errno = EDOM;
    for (size_t n = 0; n < 300000; n = n * 3 / 2 + 1) plain(n), aligned(n), every_alignment(n);
    null_may_be_deleted();
    operators_and_c_share_a_heap();
    CHECK(errno == EDOM);
}
