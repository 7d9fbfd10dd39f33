// Over NEAP_LIMIT the operators throw or give null, and call the handler before. Argument 1: the
// limit in bytes.
#include "check.h"
#include <new>
#include <vector>

static int handled;

static void handler() {
    handled++;
    std::set_new_handler(nullptr);
}

template <typename Take> static size_t take_all(Take take, size_t limit) {
    const size_t size = 10000;
    std::vector<void *> blocks;
    blocks.reserve(limit / size + 1);
    while (void *block = take(size)) {
        CHECK((blocks.size() + 1) * size <= limit); // else it would take all there is
        blocks.push_back(memset(block, 0x5a, size));
    }
    size_t bytes = blocks.size() * size;
    for (void *block : blocks) ::operator delete(block);
    return bytes;
}

static void *throwing(size_t size) {
    try {
        return ::operator new(size);
    } catch (const std::bad_alloc &) {
        return nullptr;
    }
}

static void *quiet(size_t size) {
    return ::operator new(size, std::nothrow);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("_Znwm"));
    size_t limit = strtoul(arguments[1], nullptr, 10);
    for (auto take : {throwing, quiet}) {
        for (int turn = 1; turn <= 2; turn++) {
            handled = 0;
            std::set_new_handler(handler);
            size_t bytes = take_all(take, limit);
            CHECK(bytes >= limit / 2);
            CHECK(handled == 1);
        }
    }
    return 0;
}
