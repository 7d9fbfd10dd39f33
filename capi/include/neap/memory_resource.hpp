/* A std::pmr::memory_resource on Neap's heap.
 *
 *     std::pmr::vector<int> numbers{neap::heap_resource()};
 *     std::pmr::set_default_resource(neap::heap_resource());
 *
 * C++17. Link Neap, or preload it and leave the symbols undefined. */
#ifndef NEAP_MEMORY_RESOURCE_HPP
#define NEAP_MEMORY_RESOURCE_HPP

#include "../neap.h"

#include <cstddef>
#include <cstdlib>
#include <memory_resource>
#include <new>

namespace neap {

/* Every object allocates from the one heap of the process, so all of them are equal, and a block of
 * one may be given back to another, by any thread. Unlike std::pmr::new_delete_resource() it does
 * not call operators that the program has replaced.
 *
 * Allocation throws std::bad_alloc when memory is out, and for an alignment above 1 GiB. It does
 * not call the new-handler. As the standard requires, a block is given back with the size and the
 * alignment that it was requested with. A size that another size class serves is a misuse, which
 * ends the process (see neap.h). */
class memory_resource : public std::pmr::memory_resource {
protected:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override {
        void *block = is_usual(bytes, alignment) ? std::malloc(bytes)
                                                 : ::aligned_alloc(alignment, bytes);
        if (block == nullptr) throw std::bad_alloc();
        return block;
    }

    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) noexcept override {
        if (is_usual(bytes, alignment)) {
            ::free_sized(block, bytes);
        } else {
            ::free_aligned_sized(block, alignment, bytes);
        }
    }

    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#if defined(__cpp_rtti)
        return this == &other || dynamic_cast<const memory_resource *>(&other) != nullptr;
#else
        return this == &other;
#endif
    }

private:
    /* Whether every block of malloc(bytes) has this alignment. With size classes of 8 bytes
     * (NEAP_CLASSES), a block has at least that of the largest type that fits. */
    static constexpr bool is_usual(std::size_t bytes, std::size_t alignment) noexcept {
        return alignment <= alignof(std::max_align_t) && alignment <= bytes;
    }
};

/* An object of the class that is never destroyed, so destructors of static objects may use it. */
inline std::pmr::memory_resource *heap_resource() noexcept {
    alignas(memory_resource) static unsigned char place[sizeof(memory_resource)];
    static std::pmr::memory_resource *const resource = ::new (place) memory_resource;
    return resource;
}

} // namespace neap

#endif /* NEAP_MEMORY_RESOURCE_HPP */
