// Calls whose code the compiler repeats, joins or merges; each function counts its calls as it begins and ends.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <stdexcept>

struct Counts {
    volatile int begun, done;
};

static Counts unrolled, nested, compared, same_line, searched, chosen, tagged, rounds, fallen;
static void *volatile kept;

__attribute__((noinline)) static void put(int size)
{
    free(kept);
    kept = malloc(size + 1);
}

static inline void is_unrolled()
{
    unrolled.begun++;
    unrolled.done++;
}

static inline int is_nested(int number)
{
    nested.begun++;
    int size = number * 3;
    if (size & 1)
        put(size);
    nested.done++;
    return size;
}

static inline int compares(int one, int other)
{
    compared.begun++;
    int order = one < other ? -1 : one > other;
    compared.done++;
    return order;
}

static inline void is_twice(int size)
{
    same_line.begun++;
    put(size);
    same_line.done++;
}

static inline bool searches(const char *text, char wanted)
{
    searched.begun++;
    for (; *text; text++)
        if (*text == wanted) {
            searched.done++;
            return true;
        }
    searched.done++;
    return false;
}

static inline int chooses(int number)
{
    chosen.begun++;
    int size;
    switch (number) {
    case 0: put(1); size = 1; break;
    case 1: put(20); size = 4; break;
    case 2: size = 9; break;
    case 3: put(30); put(2); size = 2; break;
    default: size = -1;
    }
    chosen.done++;
    return size;
}

static inline std::string is_tagged(int number)
{
    tagged.begun++;
    if (number == 2)
        throw std::out_of_range("two");
    std::string text(number * 20, 'x');
    tagged.done++;
    return text;
}

static inline int halves(int number)
{
    rounds.begun++;
    while (number > 10) {
        put(number);
        number -= 7;
    }
    rounds.done++;
    return number;
}

__attribute__((noinline)) static void repeats(int times)
{
    for (int i = 0; i < 8; i++)
        is_unrolled();
    for (int i = 0; i < times; i++)
        for (int j = 0; j < 3; j++)
            is_nested(i + j);
}

__attribute__((noinline)) static int merges(int one, int other)
{
    int number = compares(one, other) ? compares(other, 3) + compares(one, 2) : compares(1, one);
    is_twice(one); is_twice(other); is_twice(number + 9);
    return number;
}

__attribute__((noinline)) static int ends(const char *text, int number)
{
    int size = halves(number * 4);
    if (size == 3)
        return halves(size + 20);
    while (size < 9)
        size = halves(size + 15);
    if (searches(text, 'a') || searches(text, 'b') || (searches(text, 'c') && searches(text, 'd')))
        return chooses(number) * 2;
    for (int i = 0; i < number; i++)
        size += chooses(i);
    return halves(size);
}

__attribute__((noinline)) static int throws(int number)
{
    try {
        return is_tagged(number).size() + is_tagged(number + 1).size();
    } catch (const std::out_of_range &) {
        return 0;
    }
}

__attribute__((noinline)) static void falls(int number)
{
    fallen.begun++;
    fallen.done++;
    put(number);
    if (number > 0)
        falls(number - 1);
}

static inline int weighs(int number)
{
    int weight = number * 3;
    return weight ^ 5;
}

__attribute__((noinline)) static int weighs_all(const int *numbers, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += weighs(numbers[i]);
    return sum;
}

static void print(const char *name, const Counts &counts)
{
    printf("%s %d %d\n", name, counts.begun, counts.done);
}

int main()
{
    const char *const texts[] = {"xa", "b", "zzc", "dc", ""};
    repeats(5);
    falls(4);
    static int numbers[777];
    for (int i = 0; i < 777; i++)
        numbers[i] = rand();
    put(weighs_all(numbers, 777) & 255);
    for (int number = 0; number < 12; number++) {
        merges(number, 3);
        ends(texts[number % 5], number);
        throws(number % 4);
    }
    print("is_unrolled", unrolled);
    print("is_nested", nested);
    print("compares", compared);
    print("is_twice", same_line);
    print("searches", searched);
    print("chooses", chosen);
    print("is_tagged", tagged);
    print("halves", rounds);
    print("falls", fallen);
}
