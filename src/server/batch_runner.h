#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "batch/input_file.h"
#include "batch/job_results.h"
#include "batch/result.h"
#include "server/engine_thread.h"
#include "server/generation.h"
#include "server/job_store.h"
#include "server/run_in.h"
#include "server/served_model.h"

namespace klotski {

// Runs the batches of a store one after the other, a few rows at a time beside the requests of
// clients. A batch whose server ends, however it ends, goes on with the next one.
class BatchRunner {
 public:
  // The references must live longer; `rows_at_once` of a batch are in the engine.
  BatchRunner(JobStore& store, const ServedModel& served, EngineThread& engine,
              asio::io_context& preparation, size_t rows_at_once);
  ~BatchRunner() { stop(); }
  BatchRunner(const BatchRunner&) = delete;
  BatchRunner& operator=(const BatchRunner&) = delete;

  void start();
  // Ends after the rows at hand were given up. Nobody may run the preparation's context any more.
  void stop();

 private:
  // A row that the engine works on.
  struct Row {
    int64_t row = 0;
    ResultHead head;
    Generation generation;
    std::vector<ResponseChoice> whole;
  };
  // Wakes the runner; streams may keep it longer than the runner lives.
  struct Bell {
    std::mutex mutex;
    std::condition_variable rung;
    bool news = false;
  };
  // A batch that runs.
  struct Batch {
    std::string id;
    Endpoint endpoint = Endpoint::completions;
    InputFile& input;
    JobResults& results;
    bool input_ended = false;
    std::vector<std::unique_ptr<Row>> rows{};
  };

  void work();
  void fail(const std::string& id, const std::string& reason);
  void run(const std::string& id);
  bool run_rows(Batch& batch);
  void fill(Batch& batch);
  void start_row(Batch& batch, const InputLine& line);
  std::unique_ptr<Row> prepared_row(const Batch& batch, const InputLine& line, ResultHead& head);
  void take_news(Batch& batch);
  void finish_row(Batch& batch, Row& row);
  std::optional<ApiError> prepare(const std::function<void()>& action);
  bool engine_takes_rows() const;
  void wait_for_news();

  JobStore& store_;
  const ServedModel& served_;
  EngineThread& engine_;
  asio::io_context& preparation_;
  const size_t rows_at_once_;
  const std::string fingerprint_;
  const std::shared_ptr<Bell> bell_ = std::make_shared<Bell>();
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace klotski
