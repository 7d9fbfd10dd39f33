// neap::memory_resource, and what a C++ program expects of operator new.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <memory_resource>
#include <neap/memory_resource.hpp>
#include <new>
#include <string>
#include <thread>
#include <vector>

static void check(bool holds, const char *what) {
    if (holds) return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::_Exit(1);
}

// Destroyed after main, when the resource is still there.
static std::pmr::vector<std::pmr::string> &late() {
    static std::pmr::vector<std::pmr::string> strings{neap::heap_resource()};
    return strings;
}

static void resource() {
    std::pmr::memory_resource *heap = neap::heap_resource();
    neap::memory_resource other;
    check(*heap == other && other == *heap, "all are equal");
    check(*heap != *std::pmr::new_delete_resource(), "but not to other kinds");
    for (std::size_t alignment = 1; alignment <= 1 << 20; alignment *= 2)
        for (std::size_t bytes : {0, 1, 8, 15, 16, 24, 100, 5000, 70000, 3000000}) {
            void *block = heap->allocate(bytes, alignment);
            check(reinterpret_cast<std::uintptr_t>(block) % alignment == 0, "alignment");
            if (bytes) static_cast<char *>(block)[bytes - 1] = 1;
            other.deallocate(block, bytes, alignment);
        }
    for (std::size_t alignment : {16, 64}) {
        bool thrown = false;
        try {
            (void)heap->allocate(SIZE_MAX / 4, alignment);
        } catch (const std::bad_alloc &) {
            thrown = true;
        }
        check(thrown, "bad_alloc of the resource");
    }

    std::pmr::map<int, std::pmr::string> map{heap};
    for (int i = 0; i < 10000; i++) map.emplace(i, std::pmr::string(i % 300, 'x'));
    std::pmr::monotonic_buffer_resource buffer{heap};
    std::pmr::vector<long> numbers{&buffer};
    for (int i = 0; i < 10000; i++) numbers.push_back(i);
    std::pmr::set_default_resource(heap);
    std::thread([] { late().emplace_back("allocated by a thread that has ended, and long"); }).join();
}

static int handlers_calls = 0;
static void handler() {
    if (++handlers_calls == 3) std::set_new_handler(nullptr);
}

struct alignas(256) Wide {
    char bytes[300];
};

static void operators() {
    volatile std::size_t enormous = SIZE_MAX / 4;
    bool thrown = false;
    try {
        ::operator delete(::operator new(enormous));
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    check(thrown, "bad_alloc of operator new");
    check(::operator new(enormous, std::nothrow) == nullptr, "null of the form that does not throw");
    std::set_new_handler(handler);
    check(::operator new(enormous, std::nothrow) == nullptr, "the same with a handler");
    check(handlers_calls == 3, "the handler is called until it gives up");
    auto wide = std::make_unique<Wide>();
    check(reinterpret_cast<std::uintptr_t>(wide.get()) % 256 == 0, "operator new aligns");
    delete new int;
    delete[] new std::string[10];
}

int main(int count, char **) {
    if (count > 1) { // the mistake: a size that was not asked for
        void *block = neap::heap_resource()->allocate(40);
        neap::heap_resource()->deallocate(block, 4000);
        return 9;
    }
    resource();
    operators();
    std::printf("Neap %s\n", neap_version());
}
