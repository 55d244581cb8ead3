#include "server/multipart.h"

#include <gtest/gtest.h>

#include <random>

#include "server/api_error.h"

namespace klotski {
namespace {

const std::string kFormType = "multipart/form-data; boundary=xyz";
const std::string kForm =
    "--xyz\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
    "--xyz\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a \\\"b\\\".jsonl\"\r\n"
    "Content-Type: application/octet-stream\r\n\r\n{1}\r\n--xy\r\n{2}\n\r\n--xyz--\r\n";

TEST(MultipartTest, PartsComeOut) {
  for (const std::string& type :
       {kFormType, std::string("Multipart/Form-Data; charset=utf-8; Boundary=\"xyz\"")}) {
    const auto parts = parse_form(type, kForm);
    ASSERT_EQ(parts.size(), 2u);
    EXPECT_EQ(parts[0].name, "purpose");
    EXPECT_EQ(parts[0].content, "batch");
    EXPECT_EQ(parts[1].name, "file");
    EXPECT_EQ(parts[1].filename, "a \"b\".jsonl");
    EXPECT_EQ(parts[1].content, "{1}\r\n--xy\r\n{2}\n");
  }
  EXPECT_EQ(parse_form(kFormType, "\r\n" + kForm).size(), 2u);
  EXPECT_TRUE(parse_form(kFormType, "--xyz--\r\n").empty());
}

TEST(MultipartTest, WhatIsNoFormIsRefused) {
  EXPECT_THROW(parse_form("multipart/form-data", kForm), ApiError);
  EXPECT_THROW(parse_form("multipart/form-data; boundary=other", kForm), ApiError);
  EXPECT_THROW(parse_form(kFormType, ""), ApiError);
  std::string many;
  for (int i = 0; i < 17; ++i) many += "--xyz\r\nContent-Disposition: form-data\r\n\r\n\r\n";
  EXPECT_THROW(parse_form(kFormType, many + "--xyz--"), ApiError);
  for (size_t size = 0; size + 4 < kForm.size(); ++size) {
    EXPECT_THROW(parse_form(kFormType, kForm.substr(0, size)), ApiError) << size;
  }
  std::mt19937 random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    std::string other = kForm;
    for (int flips = 0; flips < 3; ++flips) {
      other[random() % other.size()] = static_cast<char>(random());
    }
    try {
      parse_form(kFormType, other);
    } catch (const ApiError&) {
    }
  }
}

}  // namespace
}  // namespace klotski
