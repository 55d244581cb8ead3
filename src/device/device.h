#pragma once

// An accelerator with a memory of its own. No word of CUDA here: files that include this build
// without it.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace klotski {

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  uint64_t total_bytes = 0;
  std::string pci_address;  // "0000:01:00.0"
};

struct DeviceList {
  std::vector<DeviceInfo> devices;
  std::string driver;    // the newest CUDA it knows, "13.0"; empty without a driver
  std::string why_none;  // the reason where there are no devices
};
DeviceList list_devices();

// The copies that a queue is for. A device makes large copies one after the other, whichever queues
// they are in. Medium and small copies, which something waits for, avoid waiting behind large ones
// where they can. Small copies are done before a thread that waits for them would be asleep.
enum class CopySize { large, medium, small };

struct CopyPiece {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint64_t bytes = 0;
};

// Copies between the program's memory and the device's that happen one after the other, at the same
// time as other work of the device. Used by one thread at a time; ends before the device. Its end
// waits for copies under way, but only finish() says that all were made.
class CopyQueue {
 public:
  virtual ~CopyQueue() = default;
  // `from` is free on return where it is not pinned; pinned memory must stay as it is until
  // finish().
  virtual void to_device(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  // Packs rows that lie from_stride bytes apart, at least row_bytes; otherwise like to_device.
  virtual void rows_to_device(std::byte* to, const std::byte* from, uint64_t row_bytes,
                              uint64_t rows, uint64_t from_stride) = 0;
  virtual void to_host(std::byte* to, const std::byte* from, uint64_t bytes) = 0;
  // Many copies, in whatever order or all at once; none touches another's bytes.
  virtual void pieces_to_device(std::span<const CopyPiece> pieces) {
    for (const CopyPiece& one : pieces) to_device(one.to, one.from, one.bytes);
  }
  virtual void pieces_to_host(std::span<const CopyPiece> pieces) {
    for (const CopyPiece& one : pieces) to_host(one.to, one.from, one.bytes);
  }
  virtual void finish() = 0;  // returns when all of them are done

  // Copies asked for after this happen once `count`, in the program's memory, has come to `least`;
  // it may go round. Whoever brings it there must not ask the device for anything before: a call
  // that has to be made ready first may wait for all that is under way.
  virtual void wait_for_count(const std::atomic<uint32_t>& count, uint32_t least) = 0;
  // Lets operations of the device wait for all copies asked for so far, whoever calls them
  // (ProcessorMemory::wait_for_copies). published() is the latest such event as the device knows
  // it, null before the first; any thread may ask for it.
  virtual void publish() = 0;
  virtual void* published() const = 0;
  // Copies asked for after this happen after the device's operations before a mark, given as the
  // device knows it (ProcessorMemory::let_copies_wait).
  virtual void wait_for_mark(void* mark) = 0;
};

// Whether a count that goes round has come to `least`.
inline bool has_come_to(const std::atomic<uint32_t>& count, uint32_t least) {
  return static_cast<int32_t>(count.load(std::memory_order_acquire) - least) >= 0;
}

// Every call that the device refuses throws: does_not_fit for memory, device_lost where the process
// cannot use the device any more, device_unavailable where it does not work, internal for a call
// that was wrong. Any thread, several at once.
class Device {
 public:
  virtual ~Device() = default;

  virtual const DeviceInfo& info() const = 0;
  // Bytes of the device that the process uses besides its allocations: the driver's context and
  // code, which is loaded when it first runs. Measured, so it includes memory that other processes
  // take or give back meanwhile.
  virtual uint64_t own_bytes() const = 0;
  virtual uint64_t free_bytes() const = 0;

  virtual std::byte* allocate(uint64_t bytes) = 0;  // nullptr for none
  virtual void release(std::byte* memory) noexcept = 0;

  // Keeps pages of the program's memory where they are, so that the device copies them by itself;
  // false where the system allows no more of that. Best whole pages. Pinned pages stay pinned until
  // the first range's unpin; unpin of memory that was never pinned does nothing.
  [[nodiscard]] virtual bool pin(std::span<std::byte> memory) = 0;
  virtual void unpin(std::span<std::byte> memory) noexcept = 0;

  virtual std::unique_ptr<CopyQueue> new_queue(CopySize size) = 0;
};

// Opens the device of this number. Throws device_unavailable, and says why, where there is none.
std::unique_ptr<Device> open_device(int index);

}  // namespace klotski
