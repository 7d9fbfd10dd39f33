struct Tag_N_ { int value; };

template <typename Key, typename Value> class TableN_ {
  std::map<Key, std::vector<Value>> ordered;
  std::unordered_map<std::string, std::shared_ptr<Value>> named;

 public:
  void add(const Key &key, Value value) {
    named["k" + std::to_string(ordered.size())] = std::make_shared<Value>(value);
    ordered[key].push_back(std::move(value));
  }
  template <typename F> auto fold(F f) const {
    using Result = decltype(f(std::declval<Value>(), std::declval<Value>()));
    Result result{};
    for (const auto &[key, values] : ordered) result = std::accumulate(values.begin(), values.end(), result, f);
    return result;
  }
};

class WorkN_ {
  TableN_<std::tuple<int, Tag_N_ *>, long> numbers;
  TableN_<std::string, std::string> texts;
  std::vector<std::variant<int, double, std::string>> mixed;

 public:
  std::string run(int seed) {
    for (int i = 0; i < 50; i++) {
      numbers.add({i * seed % 7, nullptr}, i * seed);
      texts.add(std::to_string(i % 9), std::string(i, 'a' + i % 26));
      mixed.push_back(i % 3 ? std::variant<int, double, std::string>(i) : std::to_string(i));
    }
    std::ostringstream out;
    out << numbers.fold([](long a, long b) { return a + b; });
    out << texts.fold([](std::string a, std::string b) { return a + b; }).size();
    for (const auto &item : mixed) std::visit([&](const auto &value) { out << value << ','; }, item);
    return std::regex_replace(out.str(), std::regex("([0-9]+),"), "<$1>");
  }
};

