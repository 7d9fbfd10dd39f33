/* Memory of mmap. */
#include "misuse.h"
#include <sys/mman.h>

int main(void) {
    free(mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)); /* HERE */
    surface();
}
