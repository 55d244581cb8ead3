#include "executor/shared_rows.h"

namespace klotski {

namespace {

std::byte* bytes_of(float* floats) { return reinterpret_cast<std::byte*>(floats); }

template <typename Copy>
void begin_copies(CopyQueue& queue, const Copy& copy) {
  begin_or_finish(copy, [&] { queue.finish(); });
}

}  // namespace

SharedRows::SharedRows(const ComputeMemory& memory, std::string_view kind, int64_t count,
                       uint64_t bytes_each)
    : SharedRows(memory, kind, memory.pool(kind, count, bytes_each), count, bytes_each) {}

SharedRows::SharedRows(const ComputeMemory& memory, std::string_view kind, uint64_t bytes)
    : SharedRows(memory, kind, std::nullopt, 1, bytes) {}

SharedRows::SharedRows(const ComputeMemory& memory, std::string_view kind,
                       std::optional<BufferPool> on_device, int64_t count, uint64_t bytes_each)
    : on_device_(std::move(on_device)),
      on_host_(*memory.host, kind, count, bytes_each),
      down_(memory.device->device().new_queue(CopySize::small)),
      up_(memory.device->device().new_queue(CopySize::small)),
      pinning_(memory.device->device(), pieces_to_pin(on_host_.bytes(), on_host_.buffer_bytes())) {}

void SharedRows::copy_down(int64_t index, FloatRange range) {
  down_->to_host(bytes_of(on_host(index) + range.first), bytes_of(on_device(index) + range.first),
                 static_cast<uint64_t>(range.count) * sizeof(float));
}

void SharedRows::up(int64_t index, std::span<const FloatRange> ranges) {
  begin_copies(*up_, [&] { copy_up(index, ranges); });
  up_->finish();
}

void SharedRows::begin_up(int64_t index, std::span<const FloatRange> ranges,
                          const std::atomic<uint32_t>& count, uint32_t least) {
  begin_copies(*up_, [&] {
    up_->wait_for_count(count, least);
    copy_up(index, ranges);
    up_->publish();
  });
}

void SharedRows::copy_up(int64_t index, std::span<const FloatRange> ranges) {
  for (const auto [first, count] : ranges) {
    up_->to_device(bytes_of(on_device(index) + first), bytes_of(on_host(index) + first),
                   static_cast<uint64_t>(count) * sizeof(float));
  }
}

}  // namespace klotski
