#pragma once

// Division of a layer's experts between a device and the CPU.

#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"
#include "hardware/profile.h"

namespace klotski {

// Measured seconds of each way to compute an expert of a layer.
struct ExpertCosts {
  Curve device;         // computing it there, by rows
  Curve cpu;            // computing it on the CPU, by rows
  double link = 0;      // bringing it to the device
  Curve down;           // bringing the group's rows to the CPU, by rows
  Curve up;             // bringing an expert's results back, by rows
  double between = 0;   // about, from the end of a layer's experts to the next layer's choices
  double kv = 0;        // the link's time for a layer's keys and values
  bool slices = false;  // the device may compute a slice of an expert, the CPU the rest
};

// Largest share of an expert in a slice: a link brings no more while the CPU computes the rest.
inline constexpr double kMostSlice = 0.5;

// Costs of every layer of a model, each kind of layer once.
struct LayerCosts {
  std::vector<ExpertCosts> kinds;
  std::vector<int> kind_of_layer;  // indices into kinds
  double between_passes = 0;       // more than between layers, about

  bool empty() const { return kinds.empty(); }
  const ExpertCosts& of(LayerId layer) const {
    return kinds[static_cast<size_t>(kind_of_layer[static_cast<size_t>(layer.value)])];
  }
};

inline constexpr double kNotOnItsWay = std::numeric_limits<double>::infinity();

struct RoutedExpert {
  ExpertId expert;
  double rows = 0;     // rows that chose it
  double arrives = 0;  // seconds from now until it is on the device; 0 or less: it is there; or
                       // kNotOnItsWay

  bool on_its_way() const { return arrives > 0 && arrives < kNotOnItsWay; }
};

struct Division {
  std::vector<ExpertId> device;  // experts in the order in which they can be computed there
  std::vector<ExpertId> cpu;     // experts in the order in which the CPU computes them
  double slice = 0;              // the share of the CPU's last expert that the device computes
  double seconds = 0;            // until both are done
};

// Divides experts so that all are done soonest: experts on the device stay there. The first of
// those on their way, and of the rest those with the most rows, which cost the CPU most and the
// link no more than others, come over the link, as many as arrive before the CPU would be done with
// them. The part of one more expert that the link can bring while the CPU computes it is a slice
// for the device. Pure: equal experts, costs and times give equal divisions. `rows`: rows of the
// group. `link_free`: when the link has brought all it was asked for; may be past.
Division divide(std::span<const RoutedExpert> experts, const ExpertCosts& costs, double rows,
                double link_free);

}  // namespace klotski
