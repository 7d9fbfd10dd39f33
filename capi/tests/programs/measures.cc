// Correct requests of every form, whose sizes the frees state. Under no set of measures is any of
// them misuse.
#include "check.h"
#include "../../include/neap.h"
#include <malloc.h>
#include <new>

static const size_t most = 70000;

// All small sizes, then fewer.
static size_t next(size_t size) {
    return size + (size < 200 ? 1 : size / 7);
}

static void *filled(void *block, size_t size) {
    CHECK(block);
    memset(block, 0x5a, size);
    return block;
}

static void cxx(size_t n) {
    operator delete(filled(operator new(n), n), n);
    operator delete[](filled(operator new[](n), n), n);
    operator delete(filled(operator new(n, std::nothrow), n));
    for (size_t align = 1; align <= 1 << 17; align *= 8) {
        std::align_val_t value = std::align_val_t(align);
        void *block = filled(operator new(n, value), n);
        CHECK(multiple_of(block, align));
        operator delete(block, n, value);
    }
}

static void c(size_t n) {
    free_sized(filled(malloc(n), n), n);
    char *zeros = static_cast<char *>(calloc(1, n));
    for (size_t at = 0; at < n; at++) CHECK(!zeros[at]);
    free_sized(filled(zeros, n), n);
    for (size_t align = 1; align <= 1 << 17; align *= 8) {
        void *block = filled(aligned_alloc(align, n), n);
        CHECK(multiple_of(block, align));
        free_aligned_sized(block, align, n);
    }
}

static void resized(size_t n) {
    const size_t others[] = {n / 2 + 1, n + 1, n + 9, n * 2 + 1};
    for (size_t other : others) {
        char *block = static_cast<char *>(filled(malloc(n), n));
        block = static_cast<char *>(realloc(block, other));
        for (size_t at = 0; at < n && at < other; at++) CHECK(block[at] == 0x5a);
        free_sized(filled(block, other), other);
    }
}

// Two live blocks of each size: they do not overlap.
static void beside(size_t n) {
    char *blocks[2];
    for (int i = 0; i < 2; i++) memset(blocks[i] = static_cast<char *>(malloc(n)), i, n);
    for (int i = 0; i < 2; i++) {
        for (size_t at = 0; at < n; at++) CHECK(blocks[i][at] == i);
        CHECK(malloc_usable_size(blocks[i]) >= n);
        free(blocks[i]);
    }
}

int main() {
    CHECK(served_by_neap("_ZdlPvm"));
    for (size_t n = 0; n < most; n = next(n)) cxx(n), c(n), resized(n), beside(n);
    // The measures fill what is free, and look at it when it is handed out again.
    static void *blocks[1000];
    for (int round = 0; round < 2; round++) {
        size_t n = 0;
        for (void *&block : blocks) n = next(n) % 3000, block = filled(operator new(n), n);
        n = 0;
        for (void *block : blocks) n = next(n) % 3000, operator delete(block, n);
    }
}
