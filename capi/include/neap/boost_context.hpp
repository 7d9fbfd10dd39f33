/* A StackAllocator for Boost.Context, and for Boost.Coroutine2 and Boost.Fiber, with Neap's stacks.
 *
 *     boost::context::fiber worker{std::allocator_arg, neap::stack_allocator{64 * 1024}, ...};
 *
 * C++11. Link libneap.so, or preload it and leave the symbols undefined. */
#ifndef NEAP_BOOST_CONTEXT_HPP
#define NEAP_BOOST_CONTEXT_HPP

#include "../neap.h"

#include <boost/context/stack_context.hpp>
#include <boost/context/stack_traits.hpp>
#include <cstddef>
#include <new>

#if defined(BOOST_USE_VALGRIND)
#include <valgrind/valgrind.h>
#endif

namespace neap {

/* `size` includes one OS page of the guard, and is 8 KiB to 8 MiB; see neap_stack_alloc. */
template <typename Traits = boost::context::stack_traits>
class basic_stack_allocator {
public:
    typedef Traits traits_type;

    explicit basic_stack_allocator(std::size_t size = 64 * 1024) noexcept : size_(size) {}

    /* Throws std::bad_alloc when out of memory, and for a size that no stack can have. */
    boost::context::stack_context allocate() {
        neap_stack_t stack;
        if (neap_stack_alloc(size_, &stack) != 0) throw std::bad_alloc();
        boost::context::stack_context context;
        context.sp = stack.top;
        context.size = stack.bytes;
#if defined(BOOST_USE_VALGRIND)
        context.valgrind_stack_id = VALGRIND_STACK_REGISTER(stack.top, stack.limit);
#endif
        return context;
    }

    void deallocate(boost::context::stack_context &context) noexcept {
#if defined(BOOST_USE_VALGRIND)
        VALGRIND_STACK_DEREGISTER(context.valgrind_stack_id);
#endif
        neap_stack_t stack = {context.sp, static_cast<char *>(context.sp) - context.size,
                              context.size};
        neap_stack_free(&stack);
    }

private:
    std::size_t size_;
};

typedef basic_stack_allocator<> stack_allocator;

} // namespace neap

#endif /* NEAP_BOOST_CONTEXT_HPP */
