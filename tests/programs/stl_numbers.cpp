// Loops over numbers as optimisers like them: unrolled, vectorised, turned into calls; nested ones in one line.
#include <array>
#include <cmath>
#include <complex>
#include <cstring>
#include <vector>
#define APART __attribute__((noinline))

static volatile double sink;

APART double f1(std::vector<double> &a, const std::vector<double> &b) {
    for (std::size_t i = 0; i < a.size(); i++) a[i] += 2 * b[i];
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); i++)
        sum += a[i] * b[i];
    return sum;
}

APART void f2(std::array<std::array<double, 6>, 6> &matrix) {
    for (int i = 0; i < 6; i++) for (int j = 0; j < 6; j++) matrix[i][j] = i == j;
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < i; j++)
            matrix[i][j] = matrix[j][i] + 1;
    sink = matrix[5][3];
}

APART int f3(unsigned n) {
    int bits = 0;
    while (n) { bits += n & 1; n >>= 1; }
    do { bits++; } while (bits < 20);
    return bits;
}

APART std::complex<double> f4(int n) {
    std::complex<double> z{0, 0}, c{0.3, 0.5};
    for (int i = 0; i < n; i++)
        z = z * z + c;
    if (std::abs(z) > 2) return c;
    return std::conj(z);
}

APART int f5(int n) {
    std::vector<char> bytes(100), others(100);
    std::memset(bytes.data(), n, bytes.size());
    for (std::size_t i = 0; i < bytes.size(); i++) others[i] = bytes[i];
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            if ((i ^ j) == 5) goto out;
            sink = i * j;
        }
    }
out:
    return std::memcmp(bytes.data(), others.data(), others.size());
}

int main() {
    std::vector<double> a(20, 1), b(20, 3);
    std::array<std::array<double, 6>, 6> matrix;
    sink = f1(a, b);
    f2(matrix);
    sink = f3(0xf0f);
    sink = f4(5).real();
    return f5(4);
}
