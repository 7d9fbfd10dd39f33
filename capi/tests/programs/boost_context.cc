// Boost.Context's fibers on stacks of Neap: switches, an exception inside, unwinding half-way.
#include "../../include/neap/boost_context.hpp"
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <vector>

namespace context = boost::context;

static void check(bool holds, const char *what) {
    if (holds) return;
    std::fprintf(stderr, "not so: %s\n", what);
    std::_Exit(1);
}

struct Counted {
    int &count;
    explicit Counted(int &count) : count(count) { count++; }
    ~Counted() { count--; }
};

int main() {
    int sum = 0, alive = 0;
    {
        std::vector<context::fiber> fibers;
        for (int i = 0; i < 1000; i++)
            fibers.emplace_back(std::allocator_arg, neap::stack_allocator{64 * 1024},
                                [&sum, &alive, i](context::fiber &&back) {
                                    Counted here(alive);
                                    back = std::move(back).resume();
                                    try {
                                        throw std::runtime_error("inside");
                                    } catch (const std::runtime_error &) {
                                        sum += i;
                                    }
                                    return std::move(back);
                                });
        for (auto &fiber : fibers) fiber = std::move(fiber).resume();
        check(alive == 1000, "all run");
        for (int i = 0; i < 500; i++) fibers[i] = std::move(fibers[i]).resume();
        check(sum == 499 * 500 / 2, "half of them ended");
    }
    check(alive == 0, "the other half was unwound");
    bool refused = false;
    try {
        neap::stack_allocator{1}.allocate();
    } catch (const std::bad_alloc &) {
        refused = true;
    }
    check(refused, "a size that no stack has");
}
