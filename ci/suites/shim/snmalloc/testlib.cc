// Implements snmalloc's test/snmalloc_testlib.h with the standard functions, so that the tests that
// use only that header run on the process's `malloc`.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <malloc.h>
#include <new>
#include <test/snmalloc_testlib.h>

namespace {
void *or_abort(void *block, size_t size) {
    if (block == nullptr && size < size_t(1) << 46)
        abort();
    return block;
}
} // namespace


namespace snmalloc {
[[noreturn]] void error(const char *const message) {
    fprintf(stderr, "%s\n", message);
    abort();
}
void message_impl(const char *const message) { fprintf(stderr, "%s\n", message); }

template <ZeroMem zero_mem> void *alloc(size_t size) {
    return or_abort(zero_mem == ZeroMem::YesZero ? ::calloc(1, size) : ::malloc(size), size);
}
template void *alloc<ZeroMem::YesZero>(size_t);
template void *alloc<ZeroMem::NoZero>(size_t);
template <ZeroMem zero_mem> void *alloc_aligned(size_t align, size_t size) {
    void *block = ::memalign(align, size);
    if (zero_mem == ZeroMem::YesZero && block != nullptr)
        memset(block, 0, size);
    return block;
}
template void *alloc_aligned<ZeroMem::YesZero>(size_t, size_t);
template void *alloc_aligned<ZeroMem::NoZero>(size_t, size_t);

void dealloc(void *block) { ::free(block); }
void dealloc(void *block, size_t) { ::free(block); }
void dealloc(void *block, size_t, size_t) { ::free(block); }
void debug_teardown() {}
size_t alloc_size(const void *block) { return ::malloc_usable_size(const_cast<void *>(block)); }
size_t remaining_bytes(const void *) { return 0; }
// No block belongs to a snmalloc heap, so the tests expect none of its sizes and alignments.
bool is_owned(void *) { return false; }
void debug_check_empty(bool *result) {
    if (result != nullptr)
        *result = true;
}
void debug_in_use(size_t) {}
void cleanup_unused() { ::malloc_trim(0); }

struct TestScopedAllocator {};
TestScopedAllocator *create_scoped_allocator() { return new TestScopedAllocator(); }
void destroy_scoped_allocator(TestScopedAllocator *it) { delete it; }
void *scoped_alloc(TestScopedAllocator *, size_t size) { return or_abort(::malloc(size), size); }
ScopedAllocHandle::ScopedAllocHandle() : ptr(create_scoped_allocator()) {}
ScopedAllocHandle::~ScopedAllocHandle() { destroy_scoped_allocator(ptr); }
void *ScopedAllocHandle::alloc(size_t size) { return scoped_alloc(ptr, size); }
void ScopedAllocHandle::dealloc(void *block) { ::free(block); }
void ScopedAllocHandle::dealloc(void *block, size_t) { ::free(block); }
ScopedAllocHandle *ScopedAllocHandle::operator->() { return this; }
const ScopedAllocHandle *ScopedAllocHandle::operator->() const { return this; }
ScopedAllocHandle get_scoped_allocator() { return {}; }

size_t max_small_sizeclass_bits() { return 16; }
size_t pal_address_bits() { return 47; }
uint64_t pal_tick() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return uint64_t(now.tv_sec) * 1000000000 + uint64_t(now.tv_nsec);
}
void pal_pause() {}

namespace libc {
void *malloc(size_t size) { return ::malloc(size); }
void *malloc_small(smallsizeclass_t sc) { return ::malloc(sizeclass_to_size_const(sc)); }
void *malloc_small_zero(smallsizeclass_t sc) { return ::calloc(1, sizeclass_to_size_const(sc)); }
void free(void *block) { ::free(block); }
void *calloc(size_t count, size_t size) { return ::calloc(count, size); }
void *realloc(void *block, size_t size) { return ::realloc(block, size); }
size_t malloc_usable_size(const void *block) {
    return ::malloc_usable_size(const_cast<void *>(block));
}
void *memalign(size_t align, size_t size) { return ::memalign(align, size); }
void *aligned_alloc(size_t align, size_t size) { return ::aligned_alloc(align, size); }
int posix_memalign(void **out, size_t align, size_t size) {
    return ::posix_memalign(out, align, size);
}
void *reallocarray(void *block, size_t count, size_t size) {
    return ::reallocarray(block, count, size);
}
// `malloc` has no interface for where a block begins and ends.
void *__malloc_start_pointer(void *) { return nullptr; }
void *__malloc_last_byte_pointer(void *) { return reinterpret_cast<void *>(~uintptr_t(0)); }
void *__malloc_end_pointer(void *) { return reinterpret_cast<void *>(~uintptr_t(0)); }
} // namespace libc
} // namespace snmalloc

void get_malloc_info_v1(malloc_info_v1 *stats) {
    stats->current_memory_usage = stats->peak_memory_usage = ::mallinfo2().uordblks;
}

extern "C" {
void *testlib_malloc(size_t size) { return malloc(size); }
void testlib_free(void *block) { free(block); }
void testlib_cfree(void *block) { free(block); }
void *testlib_calloc(size_t count, size_t size) { return calloc(count, size); }
size_t testlib_malloc_usable_size(void *block) { return malloc_usable_size(block); }
size_t testlib_malloc_good_size(size_t size) { return size; }
void *testlib_realloc(void *block, size_t size) { return realloc(block, size); }
void *testlib_reallocarray(void *block, size_t count, size_t size) {
    return reallocarray(block, count, size);
}
// NetBSD's: a size of 0 frees the block; errno is kept.
int testlib_reallocarr(void *place, size_t count, size_t size) {
    void *block;
    size_t bytes;
    memcpy(&block, place, sizeof block);
    if (__builtin_mul_overflow(count, size, &bytes))
        return EOVERFLOW;
    int before = errno;
    void *moved = bytes == 0 ? (free(block), nullptr) : realloc(block, bytes);
    errno = before;
    if (moved == nullptr && bytes != 0)
        return ENOMEM;
    memcpy(place, &moved, sizeof moved);
    return 0;
}
void *testlib_memalign(size_t align, size_t size) { return memalign(align, size); }
void *testlib_aligned_alloc(size_t align, size_t size) { return aligned_alloc(align, size); }
int testlib_posix_memalign(void **out, size_t align, size_t size) {
    return posix_memalign(out, align, size);
}
}
