/* The module of name_service.c: its only user has the number 42 if dlopen opened a library. */
#include <dlfcn.h>
#include <nss.h>
#include <pwd.h>
#include <stddef.h>

static void *handle;

__attribute__((constructor)) static void start(void) { handle = dlopen("libm.so.6", RTLD_LAZY); }

enum nss_status _nss_neaptest_getpwnam_r(const char *name, struct passwd *user, char *buffer, size_t length, int *error) {
    static char empty[1];
    *user = (struct passwd){.pw_name = (char *)name, .pw_passwd = empty, .pw_uid = handle ? 42 : 1, .pw_gecos = empty,
                            .pw_dir = empty, .pw_shell = empty};
    return NSS_STATUS_SUCCESS;
}
