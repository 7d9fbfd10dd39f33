// The program replaces some of the base operators, by the bits of SET: new, new[], delete and
// delete[]. With an alignment it replaces the others. Every form must reach those of the program
// that the standard names ([new.delete]), also from a library that is loaded later.
// Argument 1: that library, this file compiled with -DPLUGIN. Linked with -rdynamic.
#include "check.h"
#include <new>

enum Base { NEW, NEW_ARRAY, DELETE, DELETE_ARRAY, BASES };
struct Counts {
    int plain[BASES], aligned[BASES];
};
extern Counts counts;
extern bool refuses;
extern "C" void use_every_form(int set);

static int replaced;

static const std::align_val_t wide = std::align_val_t(256);

// How often a call must reach each base operator.
struct Expected {
    Base base;
    bool is_aligned;

    // What the default of a base that the program does not replace calls.
    static int target(Base base, int set) {
        if (set >> base & 1) return base;
        bool is_array = base == NEW_ARRAY || base == DELETE_ARRAY;
        return is_array && set >> (base - 1) & 1 ? base - 1 : BASES;
    }

    void matches(const Counts &before) const {
        int plain = is_aligned ? BASES : target(base, replaced);
        int aligned = is_aligned ? target(base, ~replaced) : BASES;
        for (int at = 0; at < BASES; at++) {
            CHECK(counts.plain[at] - before.plain[at] == (at == plain));
            CHECK(counts.aligned[at] - before.aligned[at] == (at == aligned));
        }
    }
};

template <typename Call> static void reaches(Base base, bool is_aligned, Call call) {
    Counts before = counts;
    call();
    Expected{base, is_aligned}.matches(before);
}

// A block by `allocate`, filled, and given back by `release`.
template <typename Allocate, typename Release>
static void pair(Base by, Base back, bool is_aligned, Allocate allocate, Release release) {
    void *block = nullptr;
    reaches(by, is_aligned, [&] { block = allocate(); });
    CHECK(block && multiple_of(block, is_aligned ? 256 : 16));
    memset(block, 0x77, 40);
    reaches(back, is_aligned, [&] { release(block); });
}

static void plain_forms() {
    auto one = [] { return operator new(40); };
    auto quiet = [] { return operator new(40, std::nothrow); };
    auto array = [] { return operator new[](40); };
    auto quiet_array = [] { return operator new[](40, std::nothrow); };
    pair(NEW, DELETE, false, one, [](void *block) { operator delete(block); });
    pair(NEW, DELETE, false, one, [](void *block) { operator delete(block, size_t(40)); });
    pair(NEW, DELETE, false, quiet, [](void *block) { operator delete(block, std::nothrow); });
    pair(NEW_ARRAY, DELETE_ARRAY, false, array, [](void *block) { operator delete[](block); });
    pair(NEW_ARRAY, DELETE_ARRAY, false, array,
         [](void *block) { operator delete[](block, size_t(40)); });
    pair(NEW_ARRAY, DELETE_ARRAY, false, quiet_array,
         [](void *block) { operator delete[](block, std::nothrow); });
}

static void aligned_forms() {
    auto one = [] { return operator new(40, wide); };
    auto quiet = [] { return operator new(40, wide, std::nothrow); };
    auto array = [] { return operator new[](40, wide); };
    auto quiet_array = [] { return operator new[](40, wide, std::nothrow); };
    pair(NEW, DELETE, true, one, [](void *block) { operator delete(block, wide); });
    pair(NEW, DELETE, true, one, [](void *block) { operator delete(block, 40, wide); });
    pair(NEW, DELETE, true, quiet,
         [](void *block) { operator delete(block, wide, std::nothrow); });
    pair(NEW_ARRAY, DELETE_ARRAY, true, array, [](void *block) { operator delete[](block, wide); });
    pair(NEW_ARRAY, DELETE_ARRAY, true, array,
         [](void *block) { operator delete[](block, 40, wide); });
    pair(NEW_ARRAY, DELETE_ARRAY, true, quiet_array,
         [](void *block) { operator delete[](block, wide, std::nothrow); });
}

// What the program's operator throws passes through the default forms.
template <typename Call> static bool throws(Call call) {
    // A compiler may leave out a call whose result is not used.
    static void *volatile block;
    try {
        block = call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

static void refusals() {
    refuses = true;
    if (replaced & 3) {
        CHECK(throws([] { return operator new[](40); }));
        CHECK(!operator new[](40, std::nothrow));
    }
    if (~replaced & 3) {
        CHECK(throws([] { return operator new[](40, wide); }));
        CHECK(!operator new[](40, wide, std::nothrow));
    }
    refuses = false;
}

extern "C" void use_every_form(int set) {
    replaced = set;
    plain_forms();
    aligned_forms();
    refusals();
}

#ifndef PLUGIN
Counts counts;
bool refuses;

// Where the program replaces an allocating operator and the one that frees its blocks, these have a
// header, which no other block has.
static const size_t mark = 0x6e656170;
static const size_t header = 256;

static bool has_header(int set) {
    return (set & 5) == 5 || (set & 15) == 10;
}

static void *get(size_t size, int set, int &count) {
    if (refuses) throw std::bad_alloc();
    count++;
    char *whole = static_cast<char *>(aligned_alloc(256, size + header));
    CHECK(whole);
    if (!has_header(set)) return whole;
    *reinterpret_cast<size_t *>(whole) = mark;
    return whole + header;
}

static void put(void *block, int set, int &count) {
    count++;
    if (!block || !has_header(set)) return free(block);
    char *whole = static_cast<char *>(block) - header;
    CHECK(*reinterpret_cast<size_t *>(whole) == mark);
    free(whole);
}

#define PLAIN(base) SET, counts.plain[base]
#define ALIGNED(base) ~SET, counts.aligned[base]

#if SET & 1
void *operator new(size_t size) { return get(size, PLAIN(NEW)); }
#else
void *operator new(size_t size, std::align_val_t) { return get(size, ALIGNED(NEW)); }
#endif
#if SET & 2
void *operator new[](size_t size) { return get(size, PLAIN(NEW_ARRAY)); }
#else
void *operator new[](size_t size, std::align_val_t) { return get(size, ALIGNED(NEW_ARRAY)); }
#endif
#if SET & 4
void operator delete(void *block) noexcept { put(block, PLAIN(DELETE)); }
#else
void operator delete(void *block, std::align_val_t) noexcept { put(block, ALIGNED(DELETE)); }
#endif
#if SET & 8
void operator delete[](void *block) noexcept { put(block, PLAIN(DELETE_ARRAY)); }
#else
void operator delete[](void *block, std::align_val_t) noexcept {
    put(block, ALIGNED(DELETE_ARRAY));
}
#endif

int main(int count, char **arguments) {
    CHECK(served_by_neap("_ZdlPvm") && served_by_neap("_ZnwmRKSt9nothrow_t"));
    CHECK(count == 2);
    use_every_form(SET);
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK(library);
    void (*use)(int) = reinterpret_cast<void (*)(int)>(dlsym(library, "use_every_form"));
    CHECK(use && use != use_every_form);
    use(SET);
    return 0;
}
#endif
