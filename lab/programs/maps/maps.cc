// Fills a std::map and a std::unordered_map, erases from them at random, and fills them again.
#include <cstdint>
#include <cstdio>
#include <map>
#include <string>
#include <unordered_map>

namespace {

// xorshift64*: the same numbers under every allocator.
std::uint64_t state = 1;
std::uint64_t next() {
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * 2685821657736338717ULL;
}

std::string word(std::uint64_t number) {
    return "key " + std::to_string(number) + std::string(number % 40, 'x');
}

constexpr std::uint64_t range = 1'000'000;

}  // namespace

int main() {
    std::map<std::uint64_t, std::uint64_t> ordered;
    std::unordered_map<std::string, std::string> hashed;
    std::uint64_t sum = 0;
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 400'000; ++i) ordered[next() % range] = i;
        for (int i = 0; i < 400'000; ++i) ordered.erase(next() % range);
        for (int i = 0; i < 200'000; ++i) hashed[word(next() % range)] = word(i);
        for (int i = 0; i < 200'000; ++i) hashed.erase(word(next() % range));
        for (const auto& entry : ordered) sum += entry.second;
        for (const auto& entry : hashed) sum += entry.second.size();
    }
    std::printf("%ju\n", static_cast<std::uintmax_t>(sum));
}
