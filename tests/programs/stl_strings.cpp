// Strings, streams and sets.
#include <cstring>
#include <set>
#include <sstream>
#include <string>
#include <vector>
#define APART __attribute__((noinline))

static volatile std::size_t sink;

APART std::vector<std::string> f1(const std::string &text) {
    std::vector<std::string> words;
    std::size_t from = 0;
    while (from < text.size()) {
        std::size_t to = text.find(' ', from);
        if (to == std::string::npos) to = text.size();
        words.push_back(text.substr(from, to - from));
        from = to + 1;
    }
    return words;
}

APART std::string f2(const std::vector<std::string> &words) {
    std::string joined;
    for (const auto &word : words)
        joined += word + "-" + std::to_string(word.size()) + ",";
    for (char &letter : joined) if (letter == ',') letter = ';';
    return joined;
}

APART std::size_t f3(const char *text) {
    std::size_t count = 0;
    for (const char *at = text; *at; at++) count += *at == 'e';
    char copy[64];
    std::strncpy(copy, text, sizeof copy - 1);
    copy[sizeof copy - 1] = 0;
    return count + std::strlen(copy);
}

APART std::string f4(int n) {
    std::ostringstream out;
    for (int i = 0; i < n; i++)
        out << i << ' ';
    std::set<char> letters;
    for (char letter : out.str()) letters.insert(letter);
    return std::string(letters.begin(), letters.end());
}

int main() {
    auto words = f1("seven 8 nine 10 the rest");
    sink = f2(words).size();
    sink = f3("some letters, and then some more of them");
    sink = f4(6).size();
    return 0;
}
