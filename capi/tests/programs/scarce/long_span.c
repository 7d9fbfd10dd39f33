/* Large blocks of which one page was touched are freed and trimmed. Calls that give pages back are
   counted: they are to be about as many as blocks, not as there are parts of 8 MiB. */
#include "own_calls.h"
#include <malloc.h>
#include <sys/mman.h>

enum { BLOCKS = 256, SKIPPED = 77 };
static const size_t block_bytes = (size_t)512 << 20;

static int calls;

static long seen(long number, const long *arguments) {
    int purges = number == SYS_madvise && arguments[2] == MADV_DONTNEED;
    __atomic_add_fetch(&calls, purges, __ATOMIC_RELAXED);
    return passed(number, arguments);
}

int main(void) {
    prepare_calls();
    static char *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = malloc(block_bytes);
        if (!blocks[i]) {
            puts("SKIPPED: no 128 GiB of untouched memory here (vm.overcommit_memory)");
            return SKIPPED;
        }
        blocks[i][block_bytes / 2] = 1;
    }
    watch_calls(1);
    for (int i = 0; i < BLOCKS; i++) free(blocks[i]);
    malloc_trim(0);
    watch_calls(0);
    if (calls > 8 * BLOCKS) dprintf(2, "%d calls for %d blocks\n", calls, BLOCKS);
    char *zeros = calloc(1, block_bytes);
    CHECK(zeros != NULL);
    for (size_t at = 0; at < block_bytes; at += 4096) CHECK(zeros[at] == 0);
    free(zeros);
    return 0;
}
