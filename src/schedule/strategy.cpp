#include "schedule/strategy.h"

#include "base/error.h"

namespace klotski {

std::unique_ptr<Schedule> make_schedule(Strategy strategy) {
  switch (strategy) {
    case Strategy::simple:
      return make_simple();
    case Strategy::multi_batch:
      return make_multi_batch();
    case Strategy::hot_prefetch:
      return make_hot_prefetch();
    case Strategy::klotski:
      return make_klotski();
    case Strategy::cgopipe:
      return make_cgopipe();
    case Strategy::hybrid:
      return make_hybrid();
    case Strategy::count_:
      break;
  }
  fail(ErrorKind::internal, "no such strategy");
}

}  // namespace klotski
