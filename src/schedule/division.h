#pragma once

// Who computes which experts of a layer: a device or the CPU beside it.

#include <limits>
#include <span>
#include <vector>

#include "base/ids.h"
#include "hardware/profile.h"

namespace klotski {

// Seconds, as measured, of what can become of an expert of a layer.
struct ExpertCosts {
  Curve device;         // computing it there, by rows
  Curve cpu;            // computing it on the CPU beside the device, by rows
  double link = 0;      // bringing it to the device
  Curve down;           // bringing the group's rows to the CPU, by rows
  Curve up;             // bringing an expert's results back, by rows
  double between = 0;   // from the end of a layer's experts to the next layer's choices, about
  double kv = 0;        // of the link's time what a layer's keys and values take
  bool slices = false;  // the device may compute a slice of an expert, the CPU the rest
};

// Of an expert: more of one no link brings while the CPU computes the rest.
inline constexpr double kMostSlice = 0.5;

// Of every layer of a model, kinds of layers once.
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
  double rows = 0;     // that chose it
  double arrives = 0;  // at the device, seconds from now; 0 or less: there; or kNotOnItsWay

  bool on_its_way() const { return arrives > 0 && arrives < kNotOnItsWay; }
};

struct Division {
  std::vector<ExpertId> device;  // in the order in which they can be computed there
  std::vector<ExpertId> cpu;     // in the order in which the CPU computes them
  double slice = 0;              // the share of the CPU's last expert that the device computes
  double seconds = 0;            // until both are done
};

// Divides experts so that all is done soonest: what lies on the device stays there; of what is on
// its way the first, and of the rest those with most rows, which cost the CPU most and the link no
// more than others, come over the link, as many as arrive before the CPU would be done with them.
// What the link can bring of one more while the CPU computes it is a slice for the device.
// Pure: the same experts, costs and times are always divided the same way. `rows`: of the group.
// `link_free`: when the link has brought all it was asked for; may be past.
Division divide(std::span<const RoutedExpert> experts, const ExpertCosts& costs, double rows,
                double link_free);

}  // namespace klotski
