#include <algorithm>
#include <iostream>
#include <map>
#include <regex>
#include <string>
#include <vector>
int main() { std::map<std::string, std::vector<int>> m; std::regex r("a+"); for (int i = 0; i < 9; i++) m[std::to_string(i)].push_back(i); std::cout << m.size(); }
