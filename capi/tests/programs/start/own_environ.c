/* A program with a variable of its own called environ. */
#include <stdio.h>
#include <stdlib.h>

char **environ = NULL;

int main(void) {
    void *block = malloc(100);
    puts(block && !environ ? "ok" : "changed");
    free(block);
    return 0;
}
