#pragma once

// A job without a model, for tests of what happens to its files: rows whose results are known.

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "batch/job_results.h"

namespace klotski {

struct PlainJob {
  JobOutputs outputs;
  int64_t rows = 12;
  unsigned order = 1;  // seed of the order in which rows are done

  static bool fails(int64_t row) { return row % 5 == 3; }
  static std::string text_of(int64_t row) {
    return fmt::format("result of row {} {}\n", row,
                       std::string(static_cast<size_t>(row % 7), 'x'));
  }

  // Runs all rows that are not done; every third one is committed.
  void run(const JobResults::WaitForSpace& wait = {},
           const OrderedJson& identity = {{"input", "i"}, {"model", "m"}}) const {
    JobResults results(outputs, -1, wait);
    results.begin(identity, rows, 1700000000);
    std::vector<int64_t> left(static_cast<size_t>(rows));
    std::iota(left.begin(), left.end(), 0);
    std::shuffle(left.begin(), left.end(), std::mt19937(order));
    int64_t added = 0;
    for (const int64_t row : left) {
      if (results.done(row)) continue;
      results.add({.row = row, .failed = fails(row), .text = text_of(row)});
      if (++added % 3 == 0) results.commit();
    }
    results.finish();
  }

  // The lines that a file must have in the end, in the order of the input.
  std::vector<std::string> lines(bool of_errors) const {
    std::vector<std::string> lines;
    for (int64_t row = 0; row < rows; ++row) {
      const bool here = outputs.errors.empty() ? !of_errors : fails(row) == of_errors;
      if (here) lines.push_back(text_of(row));
    }
    return lines;
  }
};

inline std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line + (file.eof() ? "" : "\n"));
  }
  return lines;
}

// A folder of a test, empty at first.
class JobFolder {
 public:
  explicit JobFolder(const std::string& name)
      : path(std::filesystem::temp_directory_path() / fmt::format("{}_{}", ::getpid(), name)) {
    std::filesystem::remove_all(path);
    std::filesystem::create_directories(path);
  }
  ~JobFolder() { std::filesystem::remove_all(path); }
  JobFolder(const JobFolder&) = delete;
  JobFolder& operator=(const JobFolder&) = delete;

  const std::filesystem::path path;
};

}  // namespace klotski
