// Replaces gperftools' header: the parts that the tests use, from the standard functions.
#pragma once
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <malloc.h>

class MallocExtension {
  public:
    static MallocExtension *instance() {
        static MallocExtension only;
        return &only;
    }
    // The bytes that the allocator has from the system, or those of them that are free.
    bool GetNumericProperty(const char *name, size_t *value) {
        struct mallinfo2 all = mallinfo2();
        bool whole = !strcmp(name, "generic.heap_size");
        *value = whole ? all.arena + all.hblkhd : all.fordblks;
        return true;
    }
    void GetStats(char *into, int bytes) {
        snprintf(into, size_t(bytes), "%zu bytes in use\n", mallinfo2().uordblks);
    }
    void ReleaseFreeMemory() { malloc_trim(0); }
    void MarkThreadIdle() { malloc_trim(0); }
    size_t GetThreadCacheSize() { return 0; }
};
