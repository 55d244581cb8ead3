#pragma once

// The loops that a product with bfmmla spends its time in, written out: compilers move loads
// and sums about until the registers run out, which halves the speed.

#include <arm_neon.h>

#include <cstdint>

namespace klotski::cpu::KLOTSKI_ISA {

#define KLOTSKI_FOUR(s0, s1, s2, s3, row0, row1, row2, row3, weights) \
  "bfmmla v" #s0 ".4s, v" #row0 ".8h, v" #weights                     \
  ".8h\n"                                                             \
  "bfmmla v" #s1 ".4s, v" #row1 ".8h, v" #weights                     \
  ".8h\n"                                                             \
  "bfmmla v" #s2 ".4s, v" #row2 ".8h, v" #weights                     \
  ".8h\n"                                                             \
  "bfmmla v" #s3 ".4s, v" #row3 ".8h, v" #weights ".8h\n"

// Loads ("ldp") or stores ("stp") sums, which lie in v0 and after.
#define KLOTSKI_16_SUMS(move)                                                \
  move " q0, q1, [%[sums]]\n" move " q2, q3, [%[sums], #32]\n" move          \
       " q4, q5, [%[sums], #64]\n" move " q6, q7, [%[sums], #96]\n" move     \
       " q8, q9, [%[sums], #128]\n" move " q10, q11, [%[sums], #160]\n" move \
       " q12, q13, [%[sums], #192]\n" move " q14, q15, [%[sums], #224]\n"
#define KLOTSKI_20_SUMS(move) \
  KLOTSKI_16_SUMS(move)       \
  move " q16, q17, [%[sums], #256]\n" move " q18, q19, [%[sums], #288]\n"
#define KLOTSKI_24_SUMS(move) \
  KLOTSKI_20_SUMS(move)       \
  move " q20, q21, [%[sums], #320]\n" move " q22, q23, [%[sums], #352]\n"

#define KLOTSKI_ALL_REGISTERS                                                                    \
  "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9", "v10", "v11", "v12", "v13", "v14", \
      "v15", "v16", "v17", "v18", "v19", "v20", "v21", "v22", "v23", "v24", "v25", "v26", "v27", \
      "v28", "v29", "v30", "v31", "cc", "memory"

// Four pairs of rows, six pairs of outputs, weights laid out: `quads` times four columns.
// sums: [outputs][rows]. in_stride: bytes from four columns to the next.
inline void add_laid_out_4x6(float32x4_t* sums, const bfloat16_t* in, int64_t in_stride,
                             const bfloat16_t* weights, int64_t quads) {
  asm volatile(
      KLOTSKI_24_SUMS("ldp")  //
      "1:\n"
      "ldp q24, q25, [%[in]]\n"
      "ldp q28, q29, [%[weights]]\n"
      "ldp q26, q27, [%[in], #32]\n"
      "ldp q30, q31, [%[weights], #32]\n"
      "prfm pldl1keep, [%[in], #512]\n"
      "subs %[quads], %[quads], #1\n"
      "add %[in], %[in], %[in_stride]\n"  //
      KLOTSKI_FOUR(0, 1, 2, 3, 24, 25, 26, 27, 28)
      KLOTSKI_FOUR(4, 5, 6, 7, 24, 25, 26, 27, 29)
      "ldp q28, q29, [%[weights], #64]\n"
      "add %[weights], %[weights], #96\n"  //
      KLOTSKI_FOUR(8, 9, 10, 11, 24, 25, 26, 27, 30)
      KLOTSKI_FOUR(12, 13, 14, 15, 24, 25, 26, 27, 31)
      KLOTSKI_FOUR(16, 17, 18, 19, 24, 25, 26, 27, 28)
      KLOTSKI_FOUR(20, 21, 22, 23, 24, 25, 26, 27, 29)
      "b.ne 1b\n"
      KLOTSKI_24_SUMS("stp")
      : [in] "+&r"(in), [weights] "+&r"(weights), [quads] "+&r"(quads)
      : [sums] "r"(sums), [in_stride] "r"(in_stride)
      : KLOTSKI_ALL_REGISTERS);
}

// Octets of weights: four columns of eight outputs fill a line of the cache. A line is called for
// when it is a few hundred nanoseconds away, into the second-level cache, and again when it is
// near.
#define KLOTSKI_CALL_FOR_OCTET            \
  "prfm pldl1strm, [%[weights], #1024]\n" \
  "prfm pldl2strm, [%[weights], %[far]]\n"
inline constexpr int64_t kFarBytes = 8192;

#define KLOTSKI_4X4_QUAD                                                                          \
  "ldp q16, q17, [%[in]]\n"                                                                       \
  "ldp q20, q21, [%[weights]]\n"                                                                  \
  "ldp q18, q19, [%[in], #32]\n"                                                                  \
  "ldp q22, q23, [%[weights], #32]\n"                                                             \
  "prfm pldl1keep, [%[in], #512]\n" KLOTSKI_CALL_FOR_OCTET                                        \
  "add %[in], %[in], #64\n"                                                                       \
  "add %[weights], %[weights], #64\n" KLOTSKI_FOUR(0, 1, 2, 3, 16, 17, 18, 19, 20)                \
      KLOTSKI_FOUR(4, 5, 6, 7, 16, 17, 18, 19, 21) KLOTSKI_FOUR(8, 9, 10, 11, 16, 17, 18, 19, 22) \
          KLOTSKI_FOUR(12, 13, 14, 15, 16, 17, 18, 19, 23)

// Four pairs of rows by an octet: `steps` times eight columns. sums: [4 pairs of outputs][rows].
inline void add_octet_4x4(float32x4_t* sums, const bfloat16_t* in, const bfloat16_t* weights,
                          int64_t steps) {
  asm volatile(KLOTSKI_16_SUMS("ldp")  //
               "1:\n"                  //
               KLOTSKI_4X4_QUAD        //
                   KLOTSKI_4X4_QUAD
               "subs %[steps], %[steps], #1\n"
               "b.ne 1b\n" KLOTSKI_16_SUMS("stp")
               : [in] "+&r"(in), [weights] "+&r"(weights), [steps] "+&r"(steps)
               : [sums] "r"(sums), [far] "r"(kFarBytes)
               : KLOTSKI_ALL_REGISTERS);
}

#define KLOTSKI_FIVE(s0, s1, s2, s3, s4, weights)       \
  KLOTSKI_FOUR(s0, s1, s2, s3, 24, 25, 26, 27, weights) \
  "bfmmla v" #s4 ".4s, v28.8h, v" #weights ".8h\n"
#define KLOTSKI_SIX(s0, s1, s2, s3, s4, s5, weights) \
  KLOTSKI_FIVE(s0, s1, s2, s3, s4, weights)          \
  "bfmmla v" #s5 ".4s, v29.8h, v" #weights ".8h\n"

// Five or six pairs of rows by an octet: four pairs together, and the other ones elsewhere, 32
// bytes from four columns to the next.
#define KLOTSKI_OCTET_LOOP(sums, first, second, third, fourth) \
  sums("ldp")                                                                                   \
  "1:\n"                                                                                        \
  "ldp q24, q25, [%[in]]\n"                                                                     \
  "ldp q30, q31, [%[weights]]\n"                                                                \
  "ldp q26, q27, [%[in], #32]\n"                                                                \
  "ldp q28, q29, [%[last_in]], #32\n"                                                           \
  "prfm pldl1keep, [%[in], #512]\n"                                                             \
  KLOTSKI_CALL_FOR_OCTET                                                                        \
  "subs %[quads], %[quads], #1\n"                                                               \
  "add %[in], %[in], #64\n"                                                                     \
  first second                                                                                  \
  "ldp q30, q31, [%[weights], #32]\n"                                                           \
  "add %[weights], %[weights], #64\n"                                                           \
  third fourth                                                                                  \
  "b.ne 1b\n"                                                                                   \
  sums("stp")

inline void add_octet_5x4(float32x4_t* sums, const bfloat16_t* in, const bfloat16_t* last_in,
                          const bfloat16_t* weights, int64_t quads) {
  asm volatile(
      KLOTSKI_OCTET_LOOP(KLOTSKI_20_SUMS, KLOTSKI_FIVE(0, 1, 2, 3, 4, 30),
                         KLOTSKI_FIVE(5, 6, 7, 8, 9, 31), KLOTSKI_FIVE(10, 11, 12, 13, 14, 30),
                         KLOTSKI_FIVE(15, 16, 17, 18, 19, 31))
      : [in] "+&r"(in), [last_in] "+&r"(last_in), [weights] "+&r"(weights), [quads] "+&r"(quads)
      : [sums] "r"(sums), [far] "r"(kFarBytes)
      : KLOTSKI_ALL_REGISTERS);
}

inline void add_octet_6x4(float32x4_t* sums, const bfloat16_t* in, const bfloat16_t* last_in,
                          const bfloat16_t* weights, int64_t quads) {
  asm volatile(
      KLOTSKI_OCTET_LOOP(
          KLOTSKI_24_SUMS, KLOTSKI_SIX(0, 1, 2, 3, 4, 5, 30), KLOTSKI_SIX(6, 7, 8, 9, 10, 11, 31),
          KLOTSKI_SIX(12, 13, 14, 15, 16, 17, 30), KLOTSKI_SIX(18, 19, 20, 21, 22, 23, 31))
      : [in] "+&r"(in), [last_in] "+&r"(last_in), [weights] "+&r"(weights), [quads] "+&r"(quads)
      : [sums] "r"(sums), [far] "r"(kFarBytes)
      : KLOTSKI_ALL_REGISTERS);
}

// A pair of outputs by weights as they lie in memory: two rows of weights, taken apart into the
// operand of the first four columns, which is used at once, and that of the last four.
#define KLOTSKI_PAIR(row, next, s0, s1, s2, s3, last) \
  "ldr q24, [%[" #row                                 \
  "], %[at]]\n"                                       \
  "ldr q25, [%[" #next                                \
  "], %[at]]\n"                                       \
  "zip1 v26.2d, v24.2d, v25.2d\n"                     \
  "zip2 v" #last ".2d, v24.2d, v25.2d\n" KLOTSKI_FOUR(s0, s1, s2, s3, 16, 17, 18, 19, 26)

// Four pairs of rows, four pairs of outputs, weights as they lie in memory: `steps` times eight
// columns. sums: [outputs][rows]. in_stride: bytes from four columns to the next; weight_stride:
// from row to row.
inline void add_in_place_4x4(float32x4_t* sums, const bfloat16_t* in, int64_t in_stride,
                             const bfloat16_t* weights, int64_t weight_stride, int64_t steps) {
  const auto* row = reinterpret_cast<const char*>(weights);
  int64_t at = 0;  // bytes into every row
  asm volatile(
      "movi v0.4s, #0\n movi v1.4s, #0\n movi v2.4s, #0\n movi v3.4s, #0\n"
      "movi v4.4s, #0\n movi v5.4s, #0\n movi v6.4s, #0\n movi v7.4s, #0\n"
      "movi v8.4s, #0\n movi v9.4s, #0\n movi v10.4s, #0\n movi v11.4s, #0\n"
      "movi v12.4s, #0\n movi v13.4s, #0\n movi v14.4s, #0\n movi v15.4s, #0\n"
      "1:\n"
      "ldp q16, q17, [%[in]]\n"
      "ldp q18, q19, [%[in], #32]\n"
      "add %[in], %[in], %[in_stride]\n"
      "ldp q20, q21, [%[in]]\n"
      "ldp q22, q23, [%[in], #32]\n"
      "add %[in], %[in], %[in_stride]\n"
      "subs %[steps], %[steps], #1\n"  //
      KLOTSKI_PAIR(row0, row1, 0, 1, 2, 3, 28)
      KLOTSKI_PAIR(row2, row3, 4, 5, 6, 7, 29)
      KLOTSKI_PAIR(row4, row5, 8, 9, 10, 11, 30)
      KLOTSKI_PAIR(row6, row7, 12, 13, 14, 15, 31)
      KLOTSKI_FOUR(0, 1, 2, 3, 20, 21, 22, 23, 28)
      KLOTSKI_FOUR(4, 5, 6, 7, 20, 21, 22, 23, 29)
      KLOTSKI_FOUR(8, 9, 10, 11, 20, 21, 22, 23, 30)
      KLOTSKI_FOUR(12, 13, 14, 15, 20, 21, 22, 23, 31)
      "add %[at], %[at], #16\n"
      "b.ne 1b\n"
      KLOTSKI_16_SUMS("stp")
      : [in] "+&r"(in), [at] "+&r"(at), [steps] "+&r"(steps)
      : [sums] "r"(sums), [in_stride] "r"(in_stride), [row0] "r"(row),
        [row1] "r"(row + weight_stride), [row2] "r"(row + 2 * weight_stride),
        [row3] "r"(row + 3 * weight_stride), [row4] "r"(row + 4 * weight_stride),
        [row5] "r"(row + 5 * weight_stride), [row6] "r"(row + 6 * weight_stride),
        [row7] "r"(row + 7 * weight_stride)
      : KLOTSKI_ALL_REGISTERS);
}

}  // namespace klotski::cpu::KLOTSKI_ISA
