/* The tests ask for symbols that glibc keeps for old programs alone. */
#if defined __x86_64__
#define OLDEST "GLIBC_2.2.5"
#else
#define OLDEST "GLIBC_2.17"
#endif
#define compat_symbol_reference(library, local, symbol, version) \
    __asm__(".symver " #local "," #symbol "@" OLDEST);
