#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/written_file.h"

namespace klotski {

// A page of a list, as OpenAI's interface asks for one.
struct ListPage {
  int64_t limit = 20;
  std::string after{};  // id of the entry before the page; empty: from the newest on
};

// The files of a batch by their paths.
struct BatchFiles {
  std::filesystem::path input;
  std::filesystem::path output;
  std::filesystem::path errors;
  std::string endpoint;
};

// Files and batches of a server in a folder, as OpenAI's interface knows them. Every change is on
// the disk before it is told, so that a server that is killed finds all of them again. Paths are
// made of ids that the store itself has made, never of a client's text. For any number of threads.
class JobStore {
 public:
  // Refuses (usage) a folder that cannot be made or that another server uses.
  explicit JobStore(const std::filesystem::path& folder);

  // For requests. Objects in OpenAI's form; throw ApiError (404) for an id that is not there.
  OrderedJson add_file(const std::string& name, const std::string& purpose,
                       std::string_view content);
  OrderedJson file(const std::string& id) const;
  OrderedJson files(const ListPage& page) const;
  std::string content(const std::string& id) const;
  OrderedJson remove_file(const std::string& id);  // refuses the input of a batch that runs
  // Checks the body of a request for a new batch and queues it.
  OrderedJson add_batch(std::string_view body);
  OrderedJson batch(const std::string& id) const;
  OrderedJson batches(const ListPage& page) const;
  OrderedJson cancel(const std::string& id);

  // For the thread that runs batches. The oldest batch that is not done; waits for one, and returns
  // nothing after stop().
  std::optional<std::string> next_batch();
  void stop();
  BatchFiles files_of(const std::string& id) const;
  bool cancel_asked(const std::string& id) const;
  void set_running(const std::string& id, int64_t rows);
  void count(const std::string& id, int64_t completed, int64_t failed);
  // Keeps the counts of a batch all of whose rows have ended.
  void set_finalizing(const std::string& id);
  // Ends a batch whose output files are complete.
  void complete(const std::string& id);
  void fail_batch(const std::string& id, const std::string& reason);

 private:
  using Objects = std::map<std::string, OrderedJson>;

  void load(const std::filesystem::path& folder, Objects& objects) const;
  void save(const std::filesystem::path& folder, const OrderedJson& object) const;
  void save_new(const std::filesystem::path& folder, const OrderedJson& object) const;
  const OrderedJson& find(const Objects& objects, const std::string& id) const;
  OrderedJson& running(const std::string& id);
  OrderedJson list(const Objects& objects, const ListPage& page) const;
  void change(OrderedJson batch, const std::string& status, const std::string& time_field);
  bool add_output(const std::string& id, const std::string& name);

  std::filesystem::path folder_;
  WrittenFile lock_;
  mutable std::mutex mutex_;
  std::condition_variable queued_;
  bool stopped_ = false;
  Objects files_;
  Objects batches_;  // with "klotski", fields that clients do not see
};

}  // namespace klotski
