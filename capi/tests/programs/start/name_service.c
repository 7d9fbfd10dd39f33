/* A program without libdl: the C library itself loads a module that calls dlopen. */
#include <nss.h>
#include <pwd.h>
#include <stdio.h>

int __nss_configure_lookup(const char *, const char *);

int main(void) {
    if (__nss_configure_lookup("passwd", "neaptest") != 0) return 1;
    struct passwd *user = getpwnam("neap");
    if (!user) return 2;
    printf("%d\n", user->pw_uid);
    return 0;
}
