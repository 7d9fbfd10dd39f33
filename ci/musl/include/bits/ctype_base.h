/* The classes of characters, as libstdc++ numbers them where the C library has no tables for
   them. */
#include <bits/c++config.h>
namespace std _GLIBCXX_VISIBILITY(default) {
_GLIBCXX_BEGIN_NAMESPACE_VERSION
struct ctype_base {
    typedef unsigned short mask;
    typedef const int *__to_type;
    static const mask upper = 1, lower = 1 << 1, alpha = 1 << 2, digit = 1 << 3, xdigit = 1 << 4, space = 1 << 5, print = 1 << 6,
                      graph = (1 << 2) | (1 << 3) | (1 << 9), cntrl = 1 << 8, punct = 1 << 9, alnum = (1 << 2) | (1 << 3), blank = 1 << 10;
};
_GLIBCXX_END_NAMESPACE_VERSION
}
