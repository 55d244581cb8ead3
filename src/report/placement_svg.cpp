#include "report/placement_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/markup.h"

namespace klotski {

namespace {

// All lengths are in pixels.
constexpr double kWidth = 1160;
constexpr double kLeft = 60;  // layer numbers lie before it
constexpr double kRight = 24;
constexpr double kTop = 86;
constexpr double kColumnPitch = 70;  // columns of attention, gate and dense
constexpr double kColumnGap = 8;
constexpr double kWidestExpert = 24;
constexpr double kTallestRow = 16;
constexpr double kRowsHeight = 760;
constexpr double kNumberPitch = 16;  // between layer numbers, at least
constexpr size_t kMostTips = 4000;   // a tip takes more bytes than its box

constexpr int kSteps = 10;

constexpr int32_t kMostExperts = 1 << 16;  // experts of a layer; more is no number of an expert

// 0 and kSteps mean never and always, not nearly.
int step_of(double share) {
  if (share <= 0) return 0;
  if (share >= 1) return kSteps;
  return std::clamp(static_cast<int>(std::lround(share * kSteps)), 1, kSteps - 1);
}

// Neighbouring experts of a row with equal steps.
struct Run {
  int32_t first = 0;
  int32_t count = 0;
  int step = 0;
};

struct LayerRow {
  std::map<UnitKind, int> parts;  // steps of all but experts
  std::vector<Run> experts;
};

struct LayerRows {
  std::optional<int> model;  // step of the embedding and output
  std::map<int32_t, LayerRow> layers;
  std::vector<UnitKind> columns;  // kinds that occur
  int32_t experts = 0;
  size_t runs = 0;
};

void add_expert(LayerRow& row, int32_t expert, int step) {
  if (!row.experts.empty()) {
    Run& last = row.experts.back();
    if (last.step == step && last.first + last.count == expert) {
      ++last.count;
      return;
    }
  }
  row.experts.push_back({expert, 1, step});
}

LayerRows rows_of(std::span<const PreviewedUnit> placement) {
  std::map<WeightUnit, int> steps;  // by kind, layer and expert; the first of two equal units
  for (const PreviewedUnit& placed : placement) {
    const bool numbered = placed.unit.layer.value >= 0 && placed.unit.expert.value >= 0 &&
                          placed.unit.expert.value < kMostExperts;
    if (numbered && std::isfinite(placed.memory_share)) {
      steps.emplace(placed.unit, step_of(placed.memory_share));
    }
  }
  LayerRows rows;
  for (const auto& [unit, step] : steps) {
    if (unit.kind == UnitKind::model) {
      rows.model = step;
    } else if (unit.kind == UnitKind::expert) {
      add_expert(rows.layers[unit.layer.value], unit.expert.value, step);
      rows.experts = std::max(rows.experts, unit.expert.value + 1);
    } else {
      rows.layers[unit.layer.value].parts.emplace(unit.kind, step);
      if (rows.columns.empty() || rows.columns.back() != unit.kind) {
        rows.columns.push_back(unit.kind);
      }
    }
  }
  for (const auto& [layer, row] : rows.layers) rows.runs += row.parts.size() + row.experts.size();
  return rows;
}

std::string step_style(int step) { return fmt::format("share s{}", step); }

std::string step_text(int step) {
  if (step == 0) return "transferred in every pass";
  if (step == kSteps) return "always in memory";
  return fmt::format("in memory in about {} % of the passes", 100 / kSteps * step);
}

class PlacementDrawing {
 public:
  PlacementDrawing(std::ostream& out, const LayerRows& rows)
      : rows_(rows),
        row_height_(std::clamp(kRowsHeight / static_cast<double>(rows.layers.size() + 1), 0.5,
                               kTallestRow)),
        experts_left_(kLeft + kColumnPitch * static_cast<double>(rows.columns.size())),
        expert_width_(std::min(kWidestExpert, (kWidth - kRight - experts_left_) /
                                                  static_cast<double>(std::max(rows.experts, 1)))),
        svg_(out, kWidth, kTop + row_height_ * static_cast<double>(rows.layers.size()) + 12,
             "where the weights lie") {}

  void write() {
    legend();
    column_names();
    double top = kTop;
    double numbered = 0;  // the last baseline of a layer number
    for (const auto& [layer, row] : rows_.layers) {
      const double baseline = top + row_height_ / 2 + 4;
      if (baseline >= numbered + kNumberPitch) {
        svg_.text(kLeft - 8, baseline, std::to_string(layer), "end");
        numbered = baseline;
      }
      draw_row(layer, row, top);
      top += row_height_;
    }
    svg_.close();
  }

 private:
  void legend() {
    constexpr double kSwatch = 18;
    svg_.text(kLeft, 26, "transferred in every pass");
    const double left = kLeft + text_width("transferred in every pass") + 10;
    for (int step = 0; step <= kSteps; ++step) {
      svg_.box({left + step * kSwatch, 14, kSwatch - 2, 15}, step_style(step), step_text(step));
    }
    const double right = left + kSwatch * (kSteps + 1) + 8;
    svg_.text(right, 26, "always in memory");
    if (rows_.model) {
      const double at = right + text_width("always in memory") + 40;
      svg_.box({at, 14, kSwatch - 2, 15}, step_style(*rows_.model), step_text(*rows_.model));
      svg_.text(at + kSwatch + 6, 26, "embedding and output");
    }
  }

  void column_names() {
    if (rows_.layers.empty()) return;
    svg_.text(kLeft - 8, kTop - 8, "layer", "end soft");
    for (size_t i = 0; i < rows_.columns.size(); ++i) {
      svg_.text(kLeft + kColumnPitch * static_cast<double>(i), kTop - 8,
                unit_kind_name(rows_.columns[i]), "soft");
    }
    if (rows_.experts == 0) return;
    svg_.text(experts_left_, kTop - 26, "experts", "soft");
    int32_t apart = 1;  // doubled until the numbers have room
    const double number = text_width(std::to_string(rows_.experts)) + 8;
    while (apart * expert_width_ < number && apart < rows_.experts) apart *= 2;
    for (int32_t expert = 0; expert < rows_.experts; expert += apart) {
      svg_.text(experts_left_ + expert * expert_width_, kTop - 8, std::to_string(expert), "soft");
    }
  }

  void draw_row(int32_t layer, const LayerRow& row, double top) {
    const bool tips = rows_.runs <= kMostTips;
    const double height = row_height_ * 0.9;
    for (size_t i = 0; i < rows_.columns.size(); ++i) {
      const UnitKind kind = rows_.columns[i];
      const auto part = row.parts.find(kind);
      if (part == row.parts.end()) continue;
      const double left = kLeft + kColumnPitch * static_cast<double>(i);
      svg_.box({left, top, kColumnPitch - kColumnGap, height}, step_style(part->second),
               tips ? fmt::format("layer {} {}: {}", layer, unit_kind_name(kind),
                                  step_text(part->second))
                    : "");
    }
    for (const Run& run : row.experts) {
      svg_.box({experts_left_ + run.first * expert_width_, top, run.count * expert_width_, height},
               step_style(run.step), tips ? run_tip(layer, run) : "");
    }
  }

  static std::string run_tip(int32_t layer, const Run& run) {
    const std::string which =
        run.count == 1 ? fmt::format("expert {}", run.first)
                       : fmt::format("experts {} to {}", run.first, run.first + run.count - 1);
    return fmt::format("layer {} {}: {}", layer, which, step_text(run.step));
  }

  const LayerRows& rows_;
  double row_height_;
  double experts_left_;
  double expert_width_;
  SvgWriter svg_;
};

}  // namespace

void write_placement_svg(std::ostream& out, std::span<const PreviewedUnit> placement) {
  const LayerRows rows = rows_of(placement);
  PlacementDrawing(out, rows).write();
}

}  // namespace klotski
