#pragma once

#include "kernels/cpu/kernels.h"

namespace klotski::cpu::KLOTSKI_ISA {

void matmul_panel(const MatmulPanel& panel);
void attend(const HeadGroup& group);

}  // namespace klotski::cpu::KLOTSKI_ISA
