/* The block that malloc would have given next: this thread's magazine holds it. */
#include "misuse.h"

int main(void) {
    char *block = small_block();
    free(block + 2 * 64); /* HERE */
    puts("not seen at once");
    return 0;
}
