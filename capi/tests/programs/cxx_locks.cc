// A thread holds a lock and frees; another loads a library whose constructor waits for that lock.
// The first sized delete of the process, and the first nothrow new, must not wait for the loader.
// Argument 1: the library, this file compiled with -DPLUGIN. Linked with -rdynamic: the library
// calls `begun`.
#include <mutex>

#ifdef PLUGIN
extern "C" void begun();
static const bool constructed = (begun(), true);
#else
#include "check.h"
#include <atomic>
#include <new>
#include <thread>
#include <unistd.h>

static std::mutex lock;
static std::atomic<bool> loading;

extern "C" void begun() {
    loading = true;
    std::lock_guard<std::mutex> guard(lock);
}

int main(int count, char **arguments) {
    CHECK(count == 2 && served_by_neap("_ZdlPvm"));
    alarm(60); // a deadlock ends as SIGALRM
    void *block = operator new(40);
    lock.lock();
    std::thread loader([&] { CHECK(dlopen(arguments[1], RTLD_NOW)); });
    while (!loading) usleep(1000);
    operator delete(block, 40);
    operator delete(operator new(40, std::nothrow));
    lock.unlock();
    loader.join();
    return 0;
}
#endif
