// 240 MiB of strings, which the program frees before it exits.
#include <cstdint>
#include <map>
#include <string>
#include <unistd.h>
#include <vector>

struct Catalog {
    std::map<std::string, std::vector<std::string>> items;

    __attribute__((noinline)) void add(int key) {
        // With the final zero, it fits its block.
        items["key " + std::to_string(key)].push_back(std::string((64 << 10) - 1, 'x'));
    }
};

int main() {
    Catalog catalog;
    for (int key = 0; key < 3840; key++) {
        catalog.add(key);
        usleep(500);
    }
}
