#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace klotski {

class Tier;

// A share of a tier's bytes, given back when this dies. The tier must live longer.
class Reservation {
 public:
  Reservation() = default;
  ~Reservation() { release(); }
  Reservation(Reservation&& other) noexcept;
  Reservation& operator=(Reservation&& other) noexcept;
  Reservation(const Reservation&) = delete;
  Reservation& operator=(const Reservation&) = delete;

  uint64_t bytes() const { return bytes_; }

 private:
  friend class Tier;
  Reservation(Tier* tier, size_t kind, uint64_t bytes) : tier_(tier), kind_(kind), bytes_(bytes) {}
  void release();

  Tier* tier_ = nullptr;
  size_t kind_ = 0;  // index into the tier's table
  uint64_t bytes_ = 0;
};

struct TierUse {
  std::string kind;    // purpose of the memory: "weights", "cache", ...
  uint64_t bytes = 0;  // reserved now
  uint64_t peak = 0;   // the most ever reserved at one time
};

// A memory with a limit, and the account of who holds how much of it. Any thread may reserve.
class Tier {
 public:
  Tier(std::string name, uint64_t limit_bytes);
  Tier(const Tier&) = delete;
  Tier& operator=(const Tier&) = delete;

  // Throws does_not_fit where the limit would be passed; nothing is reserved then.
  [[nodiscard]] Reservation reserve(std::string_view kind, uint64_t bytes);

  const std::string& name() const { return name_; }
  uint64_t limit_bytes() const { return limit_bytes_; }
  uint64_t used_bytes() const;
  uint64_t peak_bytes() const;
  std::vector<TierUse> uses() const;  // by each kind's first reservation

 private:
  friend class Reservation;
  size_t index_of(std::string_view kind);
  void release(size_t kind, uint64_t bytes);

  const std::string name_;
  const uint64_t limit_bytes_;
  mutable std::mutex mutex_;  // guards all members that follow
  uint64_t used_bytes_ = 0;
  uint64_t peak_bytes_ = 0;
  std::vector<TierUse> uses_;
};

}  // namespace klotski
