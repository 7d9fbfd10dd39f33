// What the C++ runtime allocates: exceptions and their copies in other threads, thread_local
// objects and their destructors, std::pmr, futures, streams and locales.
#include "check.h"
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <memory_resource>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

// An object whose destructor allocates and frees, when its thread's other objects may be gone.
struct Parting {
    static std::atomic<int> count;
    std::vector<std::string> words;
    ~Parting() {
        words.emplace_back(hidden(200), 'x');
        words.clear();
        delete[] new int[hidden(50)];
        count++;
    }
};
std::atomic<int> Parting::count;
thread_local Parting first, second;

static void threads_end_with_their_objects() {
    for (int round = 0; round < 20; round++) {
        std::vector<std::thread> threads;
        for (int i = 0; i < 8; i++)
            threads.emplace_back([i] {
                first.words.emplace_back(1000 + i, 'a');
                second.words.assign(100, "a word that is too long to stand in the string itself");
            });
        for (auto &thread : threads) thread.join();
    }
    CHECK(Parting::count == 20 * 8 * 2);
}

struct Frame {
    std::string text = std::string(hidden(100), 'f');
    int &unwound;
    explicit Frame(int &unwound) : unwound(unwound) {}
    ~Frame() { unwound++; }
};

// Throws at the depth, through frames that own memory. The exception is larger than most.
struct Large : std::runtime_error {
    char bytes[5000] = {};
    Large() : std::runtime_error("large") {}
};
static void descend(int depth, int &unwound) {
    Frame frame(unwound);
    if (depth == 0) throw Large();
    descend(depth - 1, unwound);
}

static void exceptions_unwind_and_nest() {
    int unwound = 0;
    for (int i = 0; i < 100; i++) {
        try {
            try {
                descend(20, unwound);
            } catch (const std::exception &) {
                std::throw_with_nested(std::logic_error(std::string(hidden(300), 'n')));
            }
        } catch (const std::logic_error &outer) {
            try {
                std::rethrow_if_nested(outer);
                CHECK(false);
            } catch (const Large &inner) {
                CHECK(!strcmp(inner.what(), "large"));
            }
        }
    }
    CHECK(unwound == 100 * 21);
}

static void exceptions_cross_threads() {
    std::vector<std::future<std::string>> futures;
    for (int i = 0; i < 50; i++)
        futures.push_back(std::async(std::launch::async, [i] {
            if (i % 2) throw std::out_of_range(std::to_string(i) + std::string(hidden(100), '.'));
            return std::string(100 * i, 'r');
        }));
    for (int i = 0; i < 50; i++) {
        try {
            CHECK(futures[i].get().size() == 100u * i && i % 2 == 0);
        } catch (const std::out_of_range &error) {
            CHECK(i % 2 && std::stoi(error.what()) == i);
        }
    }
}

static void resources_of_memory() {
    alignas(64) char buffer[4096];
    std::pmr::monotonic_buffer_resource once(buffer, sizeof buffer);
    std::pmr::unsynchronized_pool_resource pool(&once);
    std::pmr::synchronized_pool_resource shared;
    {
        std::pmr::map<std::pmr::string, std::pmr::vector<long>> table(&pool);
        for (int i = 0; i < 2000; i++) table[std::pmr::string(i % 300, 'k', &pool)].push_back(i);
        CHECK(table.size() == 300);
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&shared, i] {
            std::pmr::vector<std::pmr::string> words(&shared);
            for (int k = 0; k < 3000; k++) words.emplace_back(k % 100 + i, 'w');
        });
    for (auto &thread : threads) thread.join();
    std::pmr::memory_resource *plain = std::pmr::new_delete_resource();
    for (size_t align = 1; align <= 4096; align *= 2) {
        void *block = plain->allocate(hidden(333), align);
        CHECK(reinterpret_cast<uintptr_t>(block) % align == 0);
        plain->deallocate(block, 333, align);
    }
}

static void streams_and_locales() {
    std::ostringstream out;
    out.imbue(std::locale(std::locale::classic(), new std::numpunct<char>));
    for (int i = 0; i < 1000; i++) out << i << ' ' << i * 0.5 << '\n';
    std::istringstream in(out.str());
    int number, sum = 0;
    double half;
    while (in >> number >> half) sum += number;
    CHECK(sum == 499500);
    std::shared_ptr<std::string> text = std::make_shared<std::string>(out.str());
    std::weak_ptr<std::string> weak = text;
    text.reset();
    CHECK(weak.expired());
}

int main() {
    CHECK(served_by_neap("_Znwm") && served_by_neap("malloc"));
    alarm(120);
    threads_end_with_their_objects();
    exceptions_unwind_and_nest();
    exceptions_cross_threads();
    resources_of_memory();
    streams_and_locales();
}
