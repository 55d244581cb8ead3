#include "timeline/svg_colours.h"

#include <algorithm>
#include <array>
#include <utility>

namespace klotski {

namespace {

constexpr std::string_view kLoadPrefix = "load ";

struct Hue {
  std::string_view strong;
  std::string_view light;
};
struct NamedHue {
  std::string_view work;
  Hue hue;
};
constexpr std::array kNamed = {
    NamedHue{"attention", {"#4878b0", "#a9c4e2"}},
    NamedHue{"gate", {"#c9931f", "#f0d590"}},
    NamedHue{"expert", {"#3f9159", "#a8d8b5"}},
    NamedHue{"combine", {"#8a5fa8", "#d2bce0"}},
};
constexpr std::array kOthers = {
    Hue{"#5b6770", "#c2cad0"},
    Hue{"#a3574c", "#e3b7b0"},
    Hue{"#2f8f94", "#a3d5d8"},
    Hue{"#a0608a", "#e0bcd2"},
};

bool is_load(std::string_view work) { return work.starts_with(kLoadPrefix); }

std::string_view base_of(std::string_view work) {
  return is_load(work) ? work.substr(kLoadPrefix.size()) : work;
}

const Hue* named_hue(std::string_view base) {
  for (const NamedHue& named : kNamed) {
    if (named.work == base) return &named.hue;
  }
  return nullptr;
}

void add_once(std::vector<std::string_view>& list, std::string_view text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(text);
}

}  // namespace

WorkColours::WorkColours(const std::vector<TimelineSpan>& spans) {
  for (const TimelineSpan& span : spans) add_once(works_, span.work);
  std::sort(works_.begin(), works_.end(), [](std::string_view a, std::string_view b) {
    return std::pair(is_load(a), a) < std::pair(is_load(b), b);
  });
  for (const std::string_view work : works_) {
    if (named_hue(base_of(work)) == nullptr) add_once(others_, base_of(work));
  }
}

std::string_view WorkColours::of(std::string_view work) const {
  const std::string_view base = base_of(work);
  const Hue* hue = named_hue(base);
  if (hue == nullptr) {
    const auto place = std::find(others_.begin(), others_.end(), base) - others_.begin();
    hue = &kOthers[static_cast<size_t>(place) % kOthers.size()];
  }
  return is_load(work) ? hue->light : hue->strong;
}

}  // namespace klotski
