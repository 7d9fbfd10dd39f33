/* A library that leaves the process room for two mappings, before other libraries' constructors
   run. */
#include <sys/mman.h>

__attribute__((constructor)) static void use_up_mappings(void) {
    void *last[2] = {0};
    for (int i = 0;; i++) {
        int access = i & 1 ? PROT_READ : PROT_NONE;
        void *made = mmap(0, 4096, access, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (made == MAP_FAILED) break;
        last[i & 1] = made;
    }
    munmap(last[0], 4096);
    munmap(last[1], 4096);
}
