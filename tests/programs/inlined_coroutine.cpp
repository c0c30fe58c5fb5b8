// Coroutines that call a function: GCC puts some of their code into ranges of other functions.
#include <coroutine>
#include <cstdio>
#include <string>

static long steps, resumes;
static std::string text;

struct Series {
    struct promise_type {
        int value = 0;
        Series get_return_object() { return Series{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(int v)
        {
            value = v;
            return {};
        }
        void return_void() {}
        void unhandled_exception() { throw; }
    };
    std::coroutine_handle<promise_type> handle;
    ~Series()
    {
        if (handle)
            handle.destroy();
    }
    bool resume()
    {
        resumes++;
        handle.resume();
        return !handle.done();
    }
};

static inline int step(int v)
{
    steps++;
    text += std::to_string(v);
    return v * 2 + 1;
}

static Series counted(int n)
{
    for (int i = 0; i < n; i++) {
        co_yield step(i);
        if (i % 4 == 3)
            co_yield step(-i);
    }
}

static Series chosen(int n)
{
    Series inner = counted(n);
    while (inner.resume()) {
        int v = inner.handle.promise().value;
        if (v % 3 == 0)
            step(v);
        co_yield v;
    }
}

int main(int argc, char **)
{
    long sum = 0;
    {
        Series all = chosen(20 + argc);
        while (all.resume())
            sum += all.handle.promise().value;
    }
    Series few = counted(5);
    few.resume();
    few.resume();
    sum += step(7);
    std::fprintf(stderr, "%ld %zu\n", sum, text.size());
    std::printf("step %ld\nSeries::resume %ld\n", steps, resumes);
}
