// Short and long strings of a type that libc++ has no code of its own for, so that either layout can be compiled.
#include <cstdio>
#include <string>

#include "counted_new.h"

// flags: -O0
int main() {
    std::u16string none, brief(7, u'x'), full(10, u'y'), first(11, u'z'), roomy(1000, u'l');
    std::basic_string<char32_t> wide(4, U'w'), wider(5, U'w');
    roomy.resize(200);
    printf("given %ld\n", given);
    return none.size() + brief.size() + full.size() + first.size() + roomy.size() + wide.size() + wider.size() == 0;
}
