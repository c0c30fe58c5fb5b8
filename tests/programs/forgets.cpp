// A reference that optimized code no longer has once it has been used.
// flags: -O2
#include <vector>

std::vector<int> kept(1000);
std::vector<int>* volatile place = &kept;

__attribute__((noipa)) void filled() { asm volatile(""); }

__attribute__((noinline)) int counts(std::vector<int>& lost) {
    int many = (int)lost.size();
    filled();
    return many;
}

int main() { return counts(*place) == 1000 ? 0 : 1; }
