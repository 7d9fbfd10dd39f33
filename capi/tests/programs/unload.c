/* Closes the library in a thread that used it: what the library left with the C library must still
   be there. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *use_and_close(void *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *(*allocate)(size_t) = library ? (void *(*)(size_t))dlsym(library, "malloc") : NULL;
    if (!allocate || !allocate(64) || dlclose(library) != 0) _exit(2);
    return NULL; /* the thread's end runs the library's destructor */
}

int main(int count, char **arguments) {
    pthread_t thread;
    int status = -1;
    if (count != 2 || pthread_create(&thread, NULL, use_and_close, arguments[1]) != 0) return 3;
    if (pthread_join(thread, NULL) != 0) return 4;
    pid_t child = fork();
    if (child == 0) _exit(7);
    if (waitpid(child, &status, 0) != child) return 5;
    return WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 6;
}
