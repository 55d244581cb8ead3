#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace klotski {

// Bounds of what clients may take of a server.
struct HttpLimits {
  uint32_t header_bytes = 16 * 1024;
  uint64_t body_bytes = 8 * 1024 * 1024;
  uint64_t upload_bytes = 200 * 1024 * 1024;  // of a file's body
  size_t connections = 4096;
  std::chrono::milliseconds idle{60'000};    // between requests
  std::chrono::milliseconds header{10'000};  // from a request's first byte to the end of its head
  std::chrono::milliseconds body{60'000};    // for the rest of a request
  std::chrono::milliseconds write{30'000};   // for one write of a response
  std::chrono::milliseconds linger{1'000};   // for a client to read a refusal and close
};

struct ApiOptions {
  std::vector<std::string> keys{};  // one of them is asked for; empty: none is
  std::optional<std::chrono::milliseconds> request_time{};  // the most that a request may take
  uint64_t most_unsent_bytes = 1024 * 1024;                 // of one response
};

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: the system picks one
  int64_t most_waiting = 256;
  std::string jobs_folder{};               // of files and batches; empty: the server has none
  bool needs_jobs = true;                  // false: a folder that another server uses is left to it
  size_t batch_rows = 16;                  // rows of a batch in the engine at once
  std::chrono::milliseconds drain{5'000};  // for running requests to end when asked to stop
  ApiOptions api{};
  HttpLimits limits{};
};

}  // namespace klotski
