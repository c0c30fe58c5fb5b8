// Calls that compilers join, fold, turn into loops or compute once for several; the program counts all of them.
#include <cstdio>
#include <cstdlib>

static volatile int kept_calls, odd_calls, even_calls, first_calls, second_calls, weighed, changes;
static long summed;
static void *volatile kept;

__attribute__((noinline)) static void put(int size)
{
    free(kept);
    kept = malloc(size + 1);
}

static inline void keep(int size)
{
    kept_calls++;
    put(size);
}

static int is_odd(int number);

static int is_even(int number)
{
    even_calls++;
    free(kept);
    kept = malloc(number + 1);
    return number == 0 ? 1 : is_odd(number - 1);
}

static int is_odd(int number)
{
    odd_calls++;
    return number == 0 ? 0 : is_even(number - 1);
}

static int first(int size)
{
    changes++;
    put(size);
    return size * 3;
}

static int second(int size)
{
    changes++;
    put(size);
    return size * 3;
}

static inline int weigh(int number)
{
    return number < 10 ? 10 : number > 90 ? 90 : number;
}

static inline void sum(int number)
{
    summed++;
    if (number > 3)
        put(number);
}

// Both arms call the same: some compilers keep one of them, and describe none.
__attribute__((noinline)) static void has_arms(int choice, int size)
{
    if (choice)
        keep(size);
    else
        keep(size);
}

__attribute__((noinline)) static void has_no_arms(int size)
{
    keep(size + 1);
    sum(size & 1);
    sum(size & 2);
}

__attribute__((noinline)) static int both(int number)
{
    return is_even(number) + is_odd(number + 1);
}

__attribute__((noinline)) static int calls_first(int size)
{
    first_calls++;
    return first(size);
}

__attribute__((noinline)) static int calls_second(int size)
{
    second_calls++;
    return second(size) + 1;
}

__attribute__((noinline)) static int weighs(const int *numbers, int count)
{
    int total = 0;
    for (int i = 0; i < count; i++) {
        weighed++;
        if (weigh(numbers[i]) > 40) {
            weighed++;
            total += weigh(numbers[i]) - 3;
        }
    }
    return total;
}

int main(int argc, char **argv)
{
    static int numbers[703];
    int total = 0;
    (void)argv;
    for (int i = 0; i < 703; i++)
        numbers[i] = rand() % 100;
    for (int i = 0; i < 6; i++) {
        has_arms(i & 1, i);
        has_no_arms(i);
    }
    for (int i = 0; i < 4; i++)
        total += both(i + argc) + calls_first(i);
    for (int i = 0; i < 8; i++)
        total += calls_second(i);
    total += weighs(numbers, 703);
    put(total & 63);
    printf("keep %d\nis_odd %d\nis_even %d\n", kept_calls, odd_calls, even_calls);
    printf("first %d\nsecond %d\nweigh %d\nsum %ld\n", first_calls, second_calls, weighed, summed);
    return 0;
}
