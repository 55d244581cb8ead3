#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <regex>
#include <string>
#include <vector>

// Helpers of the tests of this folder only.
namespace klotski::testing_report {

inline size_t occurrences(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// Tags nest and close, text has no stray < or &. Returns the tags without their brackets.
inline std::vector<std::string> expect_well_formed(const std::string& xml) {
  std::vector<std::string> open, tags;
  for (size_t at = 0; at < xml.size(); ++at) {
    if (xml[at] == '&') {
      const std::string entity = xml.substr(at, xml.find(';', at) - at + 1);
      EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;" || entity == "&quot;")
          << entity;
    }
    if (xml[at] != '<') continue;
    const size_t end = xml.find('>', at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "a tag without an end";
      return tags;
    }
    const std::string tag = xml.substr(at + 1, end - at - 1);
    EXPECT_EQ(occurrences(tag, "\"") % 2, 0u) << tag;
    EXPECT_EQ(tag.find('<'), std::string::npos) << tag;
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != tag) {
        ADD_FAILURE() << "closes what is not open: " << tag;
        return tags;
      }
      open.pop_back();
    } else if (tag.back() != '/' && tag[0] != '!') {
      open.push_back(tag.substr(0, tag.find(' ')));
    }
    tags.push_back(tag);
    at = end;
  }
  EXPECT_TRUE(open.empty());
  return tags;
}

// Attributes of place and size are plain numbers, sizes not negative.
inline void expect_plain_numbers(const std::vector<std::string>& tags) {
  static const std::regex kAttribute(
      R"re( (x|y|x1|y1|x2|y2|cx|cy|r|width|height|viewBox)="([^"]*)")re");
  static const std::regex kNumber(R"((-?[0-9.]+(e-?[0-9]+)? ?)+)");
  for (const std::string& tag : tags) {
    for (std::sregex_iterator it(tag.begin(), tag.end(), kAttribute), end; it != end; ++it) {
      const std::string name = (*it)[1], value = (*it)[2];
      EXPECT_TRUE(std::regex_match(value, kNumber)) << tag;
      if (name == "width" || name == "height" || name == "r") {
        EXPECT_NE(value[0], '-') << tag;
      }
    }
  }
}

// The number an attribute has in a tag.
inline double attribute_of(const std::string& tag, const std::string& name) {
  const std::string start = " " + name + "=\"";
  const size_t at = tag.find(start);
  return at == std::string::npos ? -1 : std::stod(tag.substr(at + start.size()));
}

// Tags of an element with exactly this class.
inline std::vector<std::string> with_class(const std::vector<std::string>& tags,
                                           const std::string& element, const std::string& style) {
  std::vector<std::string> found;
  for (const std::string& tag : tags) {
    if (tag.rfind(element + " ", 0) == 0 &&
        tag.find("class=\"" + style + "\"") != std::string::npos) {
      found.push_back(tag);
    }
  }
  return found;
}

}  // namespace klotski::testing_report
