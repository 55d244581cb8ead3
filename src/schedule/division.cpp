#include "schedule/division.h"

#include <algorithm>

namespace klotski {

namespace {

// One way to divide: experts that the device computes by their arrival, and the CPU's.
class Trial {
 public:
  Trial(const ExpertCosts& costs, double rows) : costs_(costs), cpu_ends_(costs.down.at(rows)) {}

  void on_device(const RoutedExpert& expert, double arrives) {
    device_.push_back(expert.expert);
    device_ends_ = std::max(device_ends_, arrives) + costs_.device.at(expert.rows);
  }
  void on_cpu(const RoutedExpert& expert) {
    cpu_.push_back(expert.expert);
    cpu_ends_ += costs_.cpu.at(expert.rows);
    last_rows_ = expert.rows;
  }
  // Cuts the CPU's last expert so that both processors compute it, where the link has time for some
  // of it from `link_free` on: as much as lets both end together.
  void slice(double link_free) {
    if (cpu_.empty() || !costs_.slices) return;
    const double begins = std::max(link_free, 0.0);
    const double computing = costs_.device.at(last_rows_);
    const double on_cpu = costs_.cpu.at(last_rows_);
    const double share =
        std::min(kMostSlice, (results_up() - begins - computing) / (costs_.link + on_cpu));
    const double device_ends = std::max(device_ends_, begins + share * costs_.link) + computing;
    const double saved = share * on_cpu;
    if (share <= 0 || std::max(device_ends, results_up() - saved) >= seconds()) return;
    slice_ = share;
    device_ends_ = device_ends;
    cpu_ends_ -= saved;
  }
  Division result() && {
    const double done = seconds();
    return {std::move(device_), std::move(cpu_), slice_, done};
  }

 private:
  double results_up() const { return cpu_.empty() ? 0.0 : cpu_ends_ + costs_.up.at(last_rows_); }
  double seconds() const { return std::max(device_ends_, results_up()); }

  const ExpertCosts& costs_;
  std::vector<ExpertId> device_;
  std::vector<ExpertId> cpu_;
  double device_ends_ = 0;
  double cpu_ends_;
  double last_rows_ = 0;
  double slice_ = 0;
};

}  // namespace

Division divide(std::span<const RoutedExpert> experts, const ExpertCosts& costs, double rows,
                double link_free) {
  std::vector<RoutedExpert> there;
  std::vector<RoutedExpert> coming;
  std::vector<RoutedExpert> others;
  for (const RoutedExpert& expert : experts) {
    (expert.arrives <= 0 ? there : expert.on_its_way() ? coming : others).push_back(expert);
  }
  std::stable_sort(coming.begin(), coming.end(), [](const RoutedExpert& a, const RoutedExpert& b) {
    return a.arrives < b.arrives;
  });
  std::stable_sort(others.begin(), others.end(),
                   [](const RoutedExpert& a, const RoutedExpert& b) { return a.rows > b.rows; });

  // Tries a division: the first `awaited` experts on their way and the first `brought` of the
  // others go to the device.
  const auto divided = [&](size_t awaited, size_t brought) {
    Trial trial(costs, rows);
    for (const RoutedExpert& expert : there) trial.on_device(expert, 0.0);
    for (size_t i = 0; i < awaited; ++i) trial.on_device(coming[i], coming[i].arrives);
    double arrives = link_free;
    for (size_t i = 0; i < brought; ++i) trial.on_device(others[i], arrives += costs.link);
    for (size_t i = brought; i < others.size(); ++i) trial.on_cpu(others[i]);
    for (size_t i = awaited; i < coming.size(); ++i) trial.on_cpu(coming[i]);
    trial.slice(arrives);
    return std::move(trial).result();
  };
  Division best = divided(coming.size(), 0);
  for (size_t left_out = 0; left_out <= coming.size(); ++left_out) {
    for (size_t brought = left_out == 0 ? 1 : 0; brought <= others.size(); ++brought) {
      // With one more expert over the link the device would end still later.
      if (brought > 0 && link_free + static_cast<double>(brought) * costs.link >= best.seconds) {
        break;
      }
      Division other = divided(coming.size() - left_out, brought);
      if (other.seconds < best.seconds) best = std::move(other);
    }
  }
  return best;
}

}  // namespace klotski
