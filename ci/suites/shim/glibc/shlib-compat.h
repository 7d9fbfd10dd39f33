/* The tests use symbols that glibc keeps only for old programs. */
#if defined __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif
#define compat_symbol_reference(library, local, symbol, version) \
    __asm__(".symver " #local "," #symbol "@" OLDEST);
