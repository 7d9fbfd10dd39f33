// Replaces Scudo's header and GoogleTest: the few macros that the tests of its C and C++ wrappers
// use, and Scudo's own functions, which do nothing.
#pragma once
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#define SCUDO_ANDROID 0
#define SCUDO_FUCHSIA 0
#define SCUDO_WORDSIZE 64
#define FIRST_32_SECOND_64(narrow, wide) (wide)
#define INLINE inline
#define NOINLINE __attribute__((noinline))
#define UNUSED __attribute__((unused))
#define SKIP_ON_FUCHSIA(name) name
#define __has_warning(name) 0
enum { M_DECAY_TIME, M_PURGE, M_MEMTAG_TUNING, M_THREAD_DISABLE_MEM_INIT, M_CACHE_COUNT_MAX,
       M_CACHE_SIZE_MAX, M_TSDS_COUNT_MAX, M_MEMTAG_TUNING_BUFFER_OVERFLOW };

struct Trial {
    const char *name;
    void (*body)();
    Trial *next;
    static inline Trial *first;
    static inline bool failed;
    Trial(const char *name, void (*body)()) : name(name), body(body), next(first) { first = this; }
};

// The message after a check, written with `<<`.
struct Remark {
    bool bad;
    Remark(bool good, const char *file, int line, const char *text) : bad(!good) {
        if (bad)
            fprintf(stderr, "%s:%d: not so: %s\n", file, line, text);
        Trial::failed |= bad;
    }
    template <typename T> Remark &operator<<(const T &) { return *this; }
};

#define TEST(group, name)                                                         \
    static void group##_##name();                                                 \
    static Trial group##_##name##_trial(#group "." #name, group##_##name);        \
    static void group##_##name()
#define SHIM_CHECK(condition) Remark((condition), __FILE__, __LINE__, #condition)
#define EXPECT_TRUE(a) SHIM_CHECK(a)
#define EXPECT_FALSE(a) SHIM_CHECK(!(a))
#define EXPECT_EQ(a, b) SHIM_CHECK((a) == (b))
#define EXPECT_NE(a, b) SHIM_CHECK((a) != (b))
#define EXPECT_LE(a, b) SHIM_CHECK((a) <= (b))
#define EXPECT_LT(a, b) SHIM_CHECK((a) < (b))
#define EXPECT_GE(a, b) SHIM_CHECK((a) >= (b))
#define EXPECT_GT(a, b) SHIM_CHECK((a) > (b))
#define EXPECT_STREQ(a, b) SHIM_CHECK(!strcmp(a, b))
// Only Scudo promises which misuse ends the program.
#define EXPECT_DEATH(statement, message) ((void)0)

namespace scudo {
inline bool archSupportsMemoryTagging() { return false; }
inline bool systemSupportsMemoryTagging() { return false; }
struct ScopedDisableMemoryTagChecks {};
inline uintptr_t untagPointer(uintptr_t pointer) { return pointer; }
inline void *untagPointer(void *pointer) { return pointer; }
} // namespace scudo

extern "C" {
__attribute__((weak)) void malloc_enable(void) {}
__attribute__((weak)) void malloc_disable(void) {}
__attribute__((weak)) int malloc_iterate(uintptr_t, size_t, void (*)(uintptr_t, size_t, void *),
                                         void *) {
    return 0;
}
}

// Runs every test except those that the arguments name.
int main(int count, char **names) {
    for (Trial *trial = Trial::first; trial != nullptr; trial = trial->next) {
        bool wanted = true;
        for (int i = 1; i < count; i++)
            wanted &= strstr(trial->name, names[i]) == nullptr;
        fprintf(stderr, "%s%s\n", trial->name, wanted ? "" : ": left out");
        if (wanted)
            trial->body();
    }
    return Trial::failed;
}
