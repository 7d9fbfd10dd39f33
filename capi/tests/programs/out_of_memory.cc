// What operator new does when there is no memory: the new-handler's loop, bad_alloc, null.
#include "check.h"
#include <new>
#include <string>
#include <sys/resource.h>
#include <vector>

static const size_t impossible = hidden(PTRDIFF_MAX) - 4096;
static const std::align_val_t wide = std::align_val_t(4096);
static int calls;

// Counts unwound frames: an exception that skips clean-ups is caught by this.
struct Frame {
    static int unwound;
    ~Frame() { unwound++; }
};
int Frame::unwound;

template <typename Request> static void throws_bad_alloc(Request request) {
    Frame::unwound = 0;
    bool caught = false;
    try {
        Frame frame;
        volatile auto result = request();
        (void)result;
    } catch (const std::bad_alloc &) {
        caught = true;
    }
    CHECK(caught && Frame::unwound == 1);
}

static void without_a_handler_it_throws() {
    std::set_new_handler(nullptr);
    throws_bad_alloc([] { return operator new(impossible); });
    throws_bad_alloc([] { return operator new[](impossible); });
    throws_bad_alloc([] { return operator new(impossible, wide); });
    throws_bad_alloc([] { return operator new[](impossible, wide); });
    throws_bad_alloc([] { std::vector<char> much(impossible / 2), more(impossible / 2); return (const void *)more.data(); });
    throws_bad_alloc([] { std::string text(impossible / 2, 'x'); return (const void *)text.data(); });
}

static void nothrow_gives_null() {
    std::set_new_handler(nullptr);
    CHECK(operator new(impossible, std::nothrow) == nullptr);
    CHECK(operator new[](impossible, std::nothrow) == nullptr);
    CHECK(operator new(impossible, wide, std::nothrow) == nullptr);
    CHECK(operator new[](impossible, wide, std::nothrow) == nullptr);
}

// An alignment that is no power of two throws at once: no handler can help.
static void an_impossible_alignment_throws() {
    const std::align_val_t odd = std::align_val_t(hidden(48));
    std::set_new_handler([] { calls++; });
    calls = 0;
    throws_bad_alloc([=] { return operator new(8, odd); });
    throws_bad_alloc([=] { return operator new[](8, odd); });
    CHECK(operator new(8, odd, std::nothrow) == nullptr && calls == 0);
}

struct Mine {
    int value;
};

static void a_handler_may_throw_anything() {
    std::set_new_handler([] { throw Mine{42}; });
    int caught = 0;
    Frame::unwound = 0;
    try {
        Frame frame;
        void *volatile block = operator new(impossible);
        (void)block;
    } catch (const Mine &mine) {
        caught = mine.value;
    }
    CHECK(caught == 42 && Frame::unwound == 1);
}

static void a_handler_is_called_until_it_gives_up() {
    calls = 0;
    std::set_new_handler([] {
        if (++calls == 5) std::set_new_handler(nullptr);
    });
    throws_bad_alloc([] { return operator new(impossible); });
    CHECK(calls == 5);
    calls = 0;
    std::set_new_handler([] {
        if (++calls == 3) std::set_new_handler(nullptr);
    });
    CHECK(operator new(impossible, std::nothrow) == nullptr);
    CHECK(calls == 3);
    calls = 0;
    std::set_new_handler([] {
        if (++calls == 3) throw std::bad_alloc();
    });
    CHECK(operator new[](impossible, wide, std::nothrow) == nullptr);
    CHECK(calls == 3);
}

// The handler frees a reserve, and the request then succeeds.
static void *reserve;
static void a_handler_that_frees_memory_lets_new_succeed() {
    rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    const size_t size = 24 << 20;
    reserve = malloc(size);
    rlimit small = limit;
    small.rlim_cur = 1 << 20;
    CHECK(setrlimit(RLIMIT_AS, &small) == 0);
    calls = 0;
    std::set_new_handler([] {
        calls++;
        free(reserve);
        reserve = nullptr;
        std::set_new_handler(nullptr);
    });
    std::vector<void *> blocks;
    blocks.reserve(10000);
    while (calls == 0) {
        void *block = operator new(size);
        CHECK(block != nullptr);
        blocks.push_back(block);
    }
    CHECK(calls == 1 && reserve == nullptr);
    for (void *block : blocks) operator delete(block, size);
    CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

int main() {
    CHECK(served_by_neap("_Znwm") && served_by_neap("_ZnwmRKSt9nothrow_t"));
    without_a_handler_it_throws();
    nothrow_gives_null();
    an_impossible_alignment_throws();
    a_handler_may_throw_anything();
    a_handler_is_called_until_it_gives_up();
    a_handler_that_frees_memory_lets_new_succeed();
    std::set_new_handler(nullptr);
}
