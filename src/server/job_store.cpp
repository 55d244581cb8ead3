#include "server/job_store.h"

#include <fcntl.h>

#include <algorithm>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "base/new_file.h"
#include "base/write_calls.h"
#include "server/api_error.h"
#include "server/job_objects.h"
#include "server/request_fields.h"

namespace klotski {

namespace {

constexpr uint64_t kMostObjectBytes = 64 * kKiB;
constexpr uint64_t kMostContentBytes = uint64_t{1} << 30;

std::filesystem::path open_folder(const std::filesystem::path& folder) {
  std::error_code failed;
  for (const char* part : {"files", "batches"}) {
    std::filesystem::create_directories(folder / part, failed);
    if (!failed) continue;
    fail(ErrorKind::usage, "--jobs-folder {}: cannot be made: {}", path_in_quotes(folder),
         failed.message());
  }
  return folder;
}

}  // namespace

JobStore::JobStore(const std::filesystem::path& folder)
    : folder_(open_folder(folder)), lock_(folder / "lock", O_RDWR | O_CREAT) {
  if (!lock_.lock()) {
    fail(ErrorKind::usage, "--jobs-folder {}: another server uses it; choose another folder",
         path_in_quotes(folder));
  }
  load("files", files_);
  load("batches", batches_);
}

// Reads the objects of earlier servers.
void JobStore::load(const std::filesystem::path& folder, Objects& objects) const {
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / folder)) {
    if (entry.path().extension() != ".json") continue;
    OrderedJson object = parse_ordered_json(read_text_file(entry.path(), kMostObjectBytes),
                                            path_in_quotes(entry.path()), ErrorKind::usage);
    const std::string id = entry.path().stem().string();
    if (!is_stored_object(object, id) || (folder == "batches" && !is_stored_batch(object))) {
      fail(ErrorKind::usage, "{}: is no object of a server's jobs; remove it",
           path_in_quotes(entry.path()));
    }
    objects.emplace(id, std::move(object));
  }
}

void JobStore::save(const std::filesystem::path& folder, const OrderedJson& object) const {
  NewFile file(folder_ / folder / (object["id"].get<std::string>() + ".json"));
  file.write(object.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
  file.commit();
}

// Saves an object that no client knows yet: where that fails a later server shall not find it.
void JobStore::save_new(const std::filesystem::path& folder, const OrderedJson& object) const {
  const std::filesystem::path path = folder_ / folder / (object["id"].get<std::string>() + ".json");
  try {
    save(folder, object);
    sync_folder_of(path);
  } catch (const Error&) {
    write_calls().unlink(path.c_str());
    throw;
  }
}

const OrderedJson& JobStore::find(const Objects& objects, const std::string& id) const {
  const auto found = objects.find(id);
  if (found != objects.end()) return found->second;
  throw ApiError(
      Status::not_found,
      fmt::format("there is no {} {}", &objects == &files_ ? "file" : "batch", in_quotes(id)),
      "id");
}

OrderedJson& JobStore::running(const std::string& id) { return batches_.at(id); }

OrderedJson JobStore::list(const Objects& objects, const ListPage& page) const {
  std::vector<const OrderedJson*> newest;
  for (const auto& [id, object] : objects) newest.push_back(&object);
  std::stable_sort(newest.begin(), newest.end(), [](const OrderedJson* a, const OrderedJson* b) {
    return (*a)["created_at"].get<int64_t>() > (*b)["created_at"].get<int64_t>();
  });
  auto at = newest.begin();
  if (!page.after.empty()) {
    at = std::find(newest.begin(), newest.end(), &find(objects, page.after)) + 1;
  }
  OrderedJson data = OrderedJson::array();
  for (; at != newest.end() && static_cast<int64_t>(data.size()) < page.limit; ++at) {
    data.push_back(shown_to_clients(**at));
  }
  const auto id_of = [&](bool last) -> OrderedJson {
    return data.empty() ? OrderedJson() : (last ? data.back() : data.front())["id"];
  };
  return {{"object", "list"},
          {"first_id", id_of(false)},
          {"last_id", id_of(true)},
          {"has_more", at != newest.end()},
          {"data", data}};
}

OrderedJson JobStore::add_file(const std::string& name, const std::string& purpose,
                               std::string_view content) {
  const std::string id = random_job_id("file-");
  NewFile file(folder_ / "files" / id);
  file.write(content);
  file.commit();
  const OrderedJson object = new_file_object(id, name, purpose, content.size());
  const std::lock_guard guard(mutex_);
  try {
    save_new("files", object);
  } catch (const Error&) {  // nobody knows the name: content would fill a full disk for good
    write_calls().unlink((folder_ / "files" / id).c_str());
    throw;
  }
  files_.emplace(id, object);
  return object;
}

OrderedJson JobStore::file(const std::string& id) const {
  const std::lock_guard guard(mutex_);
  return find(files_, id);
}

OrderedJson JobStore::files(const ListPage& page) const {
  const std::lock_guard guard(mutex_);
  return list(files_, page);
}

std::string JobStore::content(const std::string& id) const {
  file(id);
  return read_text_file(folder_ / "files" / id, kMostContentBytes);
}

OrderedJson JobStore::remove_file(const std::string& id) {
  const std::lock_guard guard(mutex_);
  find(files_, id);
  for (const auto& [batch_id, batch] : batches_) {
    if (is_over(batch) || batch["input_file_id"] != id) continue;
    throw ApiError(Status::bad_request,
                   fmt::format("the file is the input of batch {}, which is not over; cancel it "
                               "first",
                               batch_id));
  }
  klotski::remove_file(folder_ / "files" / (id + ".json"));
  klotski::remove_file(folder_ / "files" / id);
  files_.erase(id);
  return {{"id", id}, {"object", "file"}, {"deleted", true}};
}

OrderedJson JobStore::add_batch(std::string_view body) {
  OrderedJson batch = new_batch(body);
  const std::lock_guard guard(mutex_);
  if (!files_.contains(batch["input_file_id"].get<std::string>())) {
    RequestFields::refuse("input_file_id", "the id of an uploaded file");
  }
  int64_t number = 0;  // batches run in the order in which they came
  for (const auto& [id, other] : batches_) {
    number = std::max(number, other[kHiddenFields]["number"].get<int64_t>() + 1);
  }
  batch[kHiddenFields] = {
      {"number", number}, {"output", random_job_id("file-")}, {"errors", random_job_id("file-")}};
  save_new("batches", batch);
  batches_.emplace(batch["id"].get<std::string>(), batch);
  queued_.notify_all();
  return shown_to_clients(batch);
}

OrderedJson JobStore::batch(const std::string& id) const {
  const std::lock_guard guard(mutex_);
  return shown_to_clients(find(batches_, id));
}

OrderedJson JobStore::batches(const ListPage& page) const {
  const std::lock_guard guard(mutex_);
  return list(batches_, page);
}

OrderedJson JobStore::cancel(const std::string& id) {
  const std::lock_guard guard(mutex_);
  if (is_over(find(batches_, id))) {
    throw ApiError(Status::bad_request, fmt::format("the batch is {} already",
                                                    batches_.at(id)["status"].get<std::string>()));
  }
  if (running(id)["status"] != "cancelling") change(running(id), "cancelling", "cancelling_at");
  return shown_to_clients(running(id));
}

// Stores the batch with a new status; where that fails the one in force stays as it is.
void JobStore::change(OrderedJson batch, const std::string& status, const std::string& time_field) {
  batch["status"] = status;
  batch[time_field] = seconds_now();
  save("batches", batch);
  sync_folder_of(folder_ / "batches" / "any");
  running(batch["id"].get<std::string>()) = batch;
}

std::optional<std::string> JobStore::next_batch() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (stopped_) return std::nullopt;
    const OrderedJson* oldest = nullptr;
    for (const auto& [id, batch] : batches_) {
      const bool older = oldest == nullptr || batch[kHiddenFields]["number"].get<int64_t>() <
                                                  (*oldest)[kHiddenFields]["number"].get<int64_t>();
      if (!is_over(batch) && older) oldest = &batch;
    }
    if (oldest) return (*oldest)["id"].get<std::string>();
    queued_.wait(lock);
  }
}

void JobStore::stop() {
  const std::lock_guard guard(mutex_);
  stopped_ = true;
  queued_.notify_all();
}

BatchFiles JobStore::files_of(const std::string& id) const {
  const std::lock_guard guard(mutex_);
  const OrderedJson& batch = find(batches_, id);
  const auto path = [&](const OrderedJson& file) {
    return folder_ / "files" / file.get<std::string>();
  };
  return {.input = path(batch["input_file_id"]),
          .output = path(batch[kHiddenFields]["output"]),
          .errors = path(batch[kHiddenFields]["errors"]),
          .endpoint = batch["endpoint"].get<std::string>()};
}

bool JobStore::cancel_asked(const std::string& id) const {
  const std::lock_guard guard(mutex_);
  return find(batches_, id)["status"] == "cancelling";
}

void JobStore::set_running(const std::string& id, int64_t rows) {
  const std::lock_guard guard(mutex_);
  running(id)["request_counts"]["total"] = rows;
  if (running(id)["status"] == "validating") change(running(id), "in_progress", "in_progress_at");
}

void JobStore::count(const std::string& id, int64_t completed, int64_t failed) {
  const std::lock_guard guard(mutex_);
  OrderedJson& counts = running(id)["request_counts"];
  counts["completed"] = completed;
  counts["failed"] = failed;
}

void JobStore::set_finalizing(const std::string& id) {
  const std::lock_guard guard(mutex_);
  if (running(id)["status"] != "cancelling") change(running(id), "finalizing", "finalizing_at");
}

// Makes a batch's output a file that clients may ask for; false where it is empty.
bool JobStore::add_output(const std::string& id, const std::string& name) {
  const std::filesystem::path path = folder_ / "files" / id;
  std::error_code absent;
  const uint64_t bytes = std::filesystem::file_size(path, absent);
  if (absent || bytes == 0) {
    klotski::remove_file(path);
    return false;
  }
  const OrderedJson object = new_file_object(id, name, "batch_output", bytes);
  save("files", object);
  files_[id] = object;
  return true;
}

void JobStore::complete(const std::string& id) {
  const std::lock_guard guard(mutex_);
  OrderedJson batch = running(id);
  const OrderedJson hidden = batch[kHiddenFields];
  for (const auto& [field, kind] :
       {std::pair("output_file_id", "output"), std::pair("error_file_id", "errors")}) {
    const auto file = hidden[kind].get<std::string>();
    if (add_output(file, fmt::format("{}_{}.jsonl", id, kind))) batch[field] = file;
  }
  const bool cancelled = batch["status"] == "cancelling";
  change(std::move(batch), cancelled ? "cancelled" : "completed",
         cancelled ? "cancelled_at" : "completed_at");
}

void JobStore::fail_batch(const std::string& id, const std::string& reason) {
  const std::lock_guard guard(mutex_);
  const OrderedJson problem = {
      {"code", "invalid_request"}, {"message", reason}, {"param", nullptr}, {"line", nullptr}};
  OrderedJson batch = running(id);
  batch["errors"] = {{"object", "list"}, {"data", OrderedJson::array({problem})}};
  change(std::move(batch), "failed", "failed_at");
}

}  // namespace klotski
