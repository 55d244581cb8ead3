#include "server/job_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>

#include "base/testing.h"
#include "base/write_calls.h"
#include "server/api_error.h"

namespace klotski {
namespace {

class JobStoreTest : public ::testing::Test {
 protected:
  ~JobStoreTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_ = std::filesystem::path(::testing::TempDir()) /
                                  (std::to_string(::getpid()) + "_job_store_test");

  static std::string id(const OrderedJson& object) { return object["id"].get<std::string>(); }
  static std::string batch_body(const std::string& file) {
    return OrderedJson{{"input_file_id", file},
                       {"endpoint", "/v1/completions"},
                       {"completion_window", "24h"},
                       {"metadata", {{"a", "b"}}}}
        .dump();
  }
};

TEST_F(JobStoreTest, FilesLastLongerThanTheServer) {
  std::string kept;
  {
    JobStore store(folder_);
    EXPECT_NE(refusal([&] { JobStore second(folder_); }).find("another server"), std::string::npos);
    const OrderedJson file = store.add_file("in.jsonl", "batch", "content");
    EXPECT_EQ(file["bytes"], 7);
    EXPECT_EQ(file["filename"], "in.jsonl");
    kept = id(file);
    const std::string gone = id(store.add_file("b", "batch", "x"));
    EXPECT_EQ(store.files({})["data"].size(), 2u);
    EXPECT_EQ(store.files({.limit = 1})["has_more"], true);
    EXPECT_TRUE(store.remove_file(gone)["deleted"].get<bool>());
    EXPECT_THROW(store.file(gone), ApiError);
  }
  const JobStore store(folder_);
  EXPECT_EQ(store.files({})["data"].size(), 1u);
  EXPECT_EQ(store.content(kept), "content");
  for (const std::string wrong : {"", "..", "../lock", "file-x"}) {
    EXPECT_THROW(store.content(wrong), ApiError);
  }
}

TEST_F(JobStoreTest, ABatchGoesThroughItsStates) {
  std::string batch;
  {
    JobStore store(folder_);
    const std::string file = id(store.add_file("in", "batch", "rows"));
    const OrderedJson made = store.add_batch(batch_body(file));
    batch = id(made);
    EXPECT_EQ(made["status"], "validating");
    EXPECT_FALSE(made.contains("klotski"));
    const std::string later = id(store.add_batch(batch_body(file)));
    EXPECT_EQ(store.next_batch(), batch);
    EXPECT_THROW(store.remove_file(file), ApiError);
    store.set_running(batch, 5);
    EXPECT_EQ(store.batch(batch)["status"], "in_progress");
    store.cancel(later);
    EXPECT_TRUE(store.cancel_asked(later));
    store.complete(later);
    EXPECT_EQ(store.batch(later)["status"], "cancelled");
    EXPECT_THROW(store.cancel(later), ApiError);
  }
  JobStore store(folder_);
  EXPECT_EQ(store.next_batch(), batch) << "a killed server's batch goes on";
  const BatchFiles files = store.files_of(batch);
  EXPECT_EQ(files.endpoint, "/v1/completions");
  std::ofstream(files.output) << "result\n";
  std::ofstream(files.errors) << "";
  store.count(batch, 4, 1);
  store.complete(batch);
  const OrderedJson done = store.batch(batch);
  EXPECT_EQ(done["status"], "completed");
  EXPECT_EQ(done["request_counts"]["completed"], 4);
  EXPECT_TRUE(done["error_file_id"].is_null());
  EXPECT_EQ(store.content(done["output_file_id"].get<std::string>()), "result\n");
  EXPECT_EQ(store.file(done["output_file_id"].get<std::string>())["purpose"], "batch_output");
  EXPECT_EQ(store.batches({})["data"].size(), 2u);
  store.stop();
  EXPECT_EQ(store.next_batch(), std::nullopt);
}

TEST_F(JobStoreTest, WrongBatchesAreRefusedByField) {
  JobStore store(folder_);
  const std::string file = id(store.add_file("in", "batch", "rows"));
  const auto refused = [&](const std::string& body) -> std::string {
    try {
      store.add_batch(body);
    } catch (const ApiError& error) {
      return error.param() + "|";
    }
    return "taken";
  };
  EXPECT_EQ(refused("{"), "|");
  EXPECT_EQ(refused("[]"), "|");
  EXPECT_EQ(refused(R"({"endpoint":"/v1/embeddings"})"), "endpoint|");
  EXPECT_EQ(refused(R"({"endpoint":"/v1/completions","input_file_id":"no"})"), "input_file_id|");
  OrderedJson body = OrderedJson::parse(batch_body(file));
  body["metadata"] = {{"a", 1}};
  EXPECT_EQ(refused(body.dump()), "metadata|");
  EXPECT_EQ(refused(batch_body(file)), "taken");
  store.fail_batch(id(store.batches({})["data"][0]), "why");
  EXPECT_EQ(store.batches({})["data"][0]["errors"]["data"][0]["message"], "why");
}

TEST_F(JobStoreTest, ForeignObjectsAreRefused) {
  { JobStore store(folder_); }
  std::ofstream(folder_ / "batches" / "batch_1.json") << R"({"id":"batch_1","created_at":1})";
  EXPECT_NE(refusal([&] { JobStore store(folder_); }).find("remove it"), std::string::npos);
}

// Lets the k-th write, flush or rename fail, alone or with all that come later.
class FailingCalls final : public WriteCalls {
 public:
  FailingCalls(int at, bool for_good) : at_(at), for_good_(for_good) {}
  bool struck() const { return calls_ > at_; }

  int open(const char* path, int flags, mode_t mode) override {
    return fails() ? -1 : WriteCalls::open(path, flags, mode);
  }
  ssize_t write(int descriptor, const void* bytes, size_t size) override {
    return fails() ? -1 : WriteCalls::write(descriptor, bytes, size);
  }
  int fsync(int) override { return fails() ? -1 : 0; }  // nothing is really flushed, to be fast
  int rename(const char* from, const char* to) override {
    return fails() ? -1 : WriteCalls::rename(from, to);
  }

 private:
  bool fails() {
    errno = ENOSPC;
    const int call = calls_++;
    return for_good_ ? call >= at_ : call == at_;
  }

  const int at_;
  const bool for_good_;
  int calls_ = 0;
};

// A file and a batch come about; a step that fails is done again, once the calls work.
TEST_F(JobStoreTest, AStepWhoseWritesFailCanBeDoneAgain) {
  for (const bool for_good : {false, true}) {
    bool struck = true;
    for (int k = 0; struck; ++k) {
      std::filesystem::remove_all(folder_);
      auto store_of_server = std::make_unique<JobStore>(folder_);
      JobStore& store = *store_of_server;
      FailingCalls failing(k, for_good);
      std::optional<ScopedWriteCalls> in_force(failing);
      std::string file;
      std::string batch;
      const auto step = [&](const std::function<void()>& work) {
        try {
          work();
        } catch (const Error&) {
          if (!batch.empty()) {  // as the runner does
            EXPECT_EQ(refusal([&] { store.fail_batch(batch, "x"); }).empty(), !for_good) << k;
          }
          in_force.reset();
          if (batch.empty() || for_good) work();
        }
      };
      step([&] { file = id(store.add_file("in", "batch", "rows")); });
      EXPECT_EQ(store.files({})["data"].size(), 1u) << k;
      step([&] { batch = id(store.add_batch(batch_body(file))); });
      const auto ended = [&] { return store.batch(batch)["status"] == "failed"; };
      if (!ended()) step([&] { store.set_running(batch, 1); });
      if (!ended()) step([&] { store.set_finalizing(batch); });
      std::ofstream(store.files_of(batch).output) << "result";
      if (!ended()) step([&] { store.complete(batch); });
      in_force.reset();
      struck = failing.struck();
      const OrderedJson last = store.batch(batch);
      EXPECT_EQ(last["status"] == "completed", last["errors"].is_null()) << k;
      EXPECT_TRUE(last["status"] == "completed" || !for_good) << k;
      const OrderedJson files = store.files({});
      EXPECT_EQ(store.batches({})["data"].size(), 1u) << k;
      store_of_server.reset();
      const JobStore next(folder_);
      EXPECT_EQ(next.batch(batch), last) << k;
      EXPECT_EQ(next.files({}), files) << k;
      EXPECT_EQ(next.batches({})["data"].size(), 1u) << k;
    }
  }
}

}  // namespace
}  // namespace klotski
