/* libstdc++ looks for this header of glibc's, which stands in /usr/include. musl does not tell how
   many threads there are. */
static const char __libc_single_threaded = 0;
