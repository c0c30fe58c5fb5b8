// Calls that g++ inlines so that their code is shared, or lost for the debugger; each function counts its calls.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

static volatile int compared, shortened;
static void *volatile kept;

__attribute__((noinline)) static void put(int size)
{
    free(kept);
    kept = malloc(size);
}

struct Less {
    bool operator()(int a, int b) const
    {
        compared++;
        return a < b;
    }
};

__attribute__((noinline)) static void sorts()
{
    int numbers[20];
    for (int i = 0; i < 20; i++)
        numbers[i] = (i * 7919) % 31;
    std::sort(numbers, numbers + 20, Less());
    put(numbers[3]);
}

static inline int shorten(int number)
{
    shortened++;
    if (number == 0)
        return -1;
    if (number == 1) {
        put(1);
        return 1;
    }
    while (number > 3) {
        number -= 3;
        put(number);
    }
    return number;
}

__attribute__((noinline)) static int shortens(int number)
{
    int rest = shorten(number);
    if (rest < 0)
        return shorten(1);
    return shorten(rest + 7);
}

int main()
{
    for (int number = 0; number < 6; number++) {
        sorts();
        shortens(number);
    }
    printf("Less::operator() %d\nshorten %d\n", compared, shortened);
    return 0;
}
