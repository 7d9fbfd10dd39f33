// A C++ plugin for a C program: its runtime is in the plugin's scope alone.
#include <new>

extern "C" int plugin_runs_out_of_memory(unsigned long size) {
    try {
        operator delete(operator new(size));
    } catch (const std::bad_alloc &) {
        return operator new(size, std::nothrow) == nullptr;
    }
    return 0;
}
