#include "attention_probe_sections.h"

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <set>

namespace megatoken::probe {

namespace {

constexpr int64_t K = 1024;
constexpr int64_t M = K * K;
constexpr const char* kLimit = "CUDNN_FRONTEND_ATTN_DP_WORKSPACE_LIMIT";

// Which of NVIDIA's libraries this process has mapped by now.
std::string mapped_libraries() {
  std::ifstream maps("/proc/self/maps");
  std::set<std::string> names;
  for (std::string line; std::getline(maps, line);) {
    const size_t slash = line.rfind('/');
    if (slash == std::string::npos) continue;
    const std::string name = line.substr(slash + 1);
    for (const char* part : {"libcud", "libnv", "libcublas"}) {
      if (name.rfind(part, 0) == 0) names.insert(name);
    }
  }
  std::string all;
  for (const std::string& n : names) all += (all.empty() ? "" : " ") + n;
  return all;
}

void run_info(Rig& rig) {
  if (rig.collecting()) return;
  rig.say("cudnn", std::to_string(rig.library().version()));
  if (rig.library().has_device()) rig.say("device", rig.library().describe_device());
  rig.say("mapped", mapped_libraries());
}

// Right answers where element offsets pass 2^31, on the trainer's views; and which tensor is to blame where they are
// not.
void run_offset(Rig& rig) {
  const Options o{.repeats = 1, .check_rows = 24};
  rig.run({.name = "keys beyond 2^31", .group = 8, .queries = 64 * K, .keys = M, .wide = true}, o);
  Shape s{.name = "queries beyond 2^31", .group = 8, .queries = M, .keys = 4 * K, .wide = true};
  rig.run(s, o);
  const std::set<Role> all = {kQ, kO, kDO, kDQ};
  const std::pair<Role, const char*> roles[] = {{kQ, "only q"}, {kO, "only o"}, {kDO, "only dO"}, {kDQ, "only dq"}};
  for (const auto& [role, name] : roles) {
    s.narrow = all;
    s.narrow.erase(role);
    s.name = std::string(name) + " beyond 2^31";
    rig.run(s, o);
  }
  s.narrow = all;
  s.name = "none beyond 2^31";
  rig.run(s, o);
  s.narrow.clear();
  for (int64_t rows : {M / 2, M / 2 + 64 * K}) {
    s.queries = rows;
    s.name = rows * kWideColumns <= int64_t{1} << 31 ? "queries up to 2^31" : "queries a little beyond";
    rig.run(s, o);
  }
  rig.run({.name = "1M causal", .group = 2, .queries = M, .keys = M, .mask = Mask::causal_top_left},
          {.repeats = 0, .check_rows = 24});
}

void run_types(Rig& rig) {
  const Options o{.repeats = 3, .check_rows = 64};
  const Shape gqa{.group = 4, .queries = 8 * K, .keys = 16 * K};
  for (bool fold : {false, true}) {
    Shape s = gqa;
    s.fold = fold;
    auto with = [&](const char* name, auto change) {
      Shape t = s;
      change(t);
      t.name = name;
      if (rig.library().has_device()) {
        rig.run(t, o);
      } else {
        rig.build(t);
      }
    };
    with("all bf16", [](Shape&) {});
    with("o fp32", [](Shape& t) { t.o_type = Type::f32; });
    with("o and dO fp32", [](Shape& t) { t.o_type = t.d_o_type = Type::f32; });
    with("dq fp32", [](Shape& t) { t.dq_type = Type::f32; });
    with("dq, dk, dv fp32", [](Shape& t) { t.dq_type = t.dkv_type = Type::f32; });
  }
}

void run_tiny(Rig& rig) {
  const std::pair<int64_t, int64_t> sizes[] = {{1, 1},   {1, 2},    {1, 5000}, {2, 2},     {3, 130},
                                               {65, 65}, {65, 127}, {200, 1},  {129, 1000}};
  for (const auto& [q, k] : sizes) {
    for (Mask mask : {Mask::full, Mask::causal_top_left, Mask::causal_bottom_right}) {
      for (bool fold : {false, true}) {
        if (fold && (mask != Mask::full || q > 3)) continue;
        if (mask == Mask::causal_bottom_right && k < q) continue;
        if (mask == Mask::causal_top_left && k != q) continue;
        Shape s{.name = "tiny", .group = 4, .queries = q, .keys = k, .mask = mask, .fold = fold};
        if (rig.library().has_device()) {
          rig.run(s, {.repeats = 1, .check_rows = 200});
        } else {
          rig.build(s);
        }
      }
    }
  }
}

// cuDNN's other backward algorithm for small problems, if this version has it.
void run_switch(Rig& rig) {
  for (const char* limit : {"", "-1", "0"}) {
    if (*limit) {
      setenv(kLimit, limit, 1);
    } else {
      unsetenv(kLimit);
    }
    rig.forget();  // the variable is read when a graph is built
    const std::string name = std::string("dP limit ") + (*limit ? limit : "unset");
    for (bool deterministic : {false, true}) {
      Shape s{.name = name + (deterministic ? ", deterministic" : ""), .group = 4, .queries = 2 * K, .keys = 2 * K};
      s.deterministic = deterministic;
      if (rig.library().has_device()) {
        rig.run(s, {.repeats = 3, .check_rows = 64});
      } else {
        rig.build(s);
      }
    }
  }
  unsetenv(kLimit);
  rig.forget();
}

Shape square(int64_t group, int64_t length) {
  return {.name = "causal", .group = group, .queries = length, .keys = length, .mask = Mask::causal_top_left};
}

// One graph, built for the largest shape, given smaller true lengths; and forward graphs that share their kernels.
void run_lengths(Rig& rig) {
  const Options timed{.repeats = 3, .check_rows = 16};
  auto cut = [&](Shape s, std::initializer_list<std::pair<int64_t, int64_t>> cuts) {
    s.name = "lengths";
    s.lengths = true;
    for (const auto& [q, k] : cuts) {
      s.true_queries = q;
      s.true_keys = k;
      rig.run(s, timed);
    }
  };
  Shape exact{.name = "exact", .group = 8, .queries = 64 * K, .keys = 128 * K};
  for (bool fold : {true, false}) {
    exact.fold = fold;
    rig.run(exact, timed);
    cut(exact, {{-1, -1}, {40000, 100001}, {30000, 5}, {5, 100001}, {1, 1}, {3, 2}});
  }
  exact.dynamic_shape = true;
  for (const auto& [q, k] : {std::pair{64 * K, 128 * K}, {int64_t{60000}, int64_t{100000}}}) {
    exact.queries = q;
    exact.keys = k;
    rig.run(exact, timed);
  }
  Shape causal = square(8, 64 * K);
  causal.name = "exact";
  rig.run(causal, timed);
  cut(causal, {{-1, -1}, {40000, 40000}, {1000, 1000}, {1, 1}});
  causal.mask = Mask::causal_bottom_right;
  rig.run(causal, timed);
  cut(causal, {{-1, -1}, {30000, 60001}, {3, 200}});
}

// True lengths of zero.
void run_empty(Rig& rig) {
  for (bool fold : {true, false}) {
    Shape s{.name = "lengths", .group = 8, .queries = 64 * K, .keys = 128 * K, .fold = fold};
    s.lengths = true;
    for (const auto& [q, k] : {std::pair<int64_t, int64_t>{0, 1000}, {1000, 0}, {0, 0}}) {
      s.true_queries = q;
      s.true_keys = k;
      rig.run(s, {.repeats = 1, .check_rows = 16});
    }
  }
}

void run_speed(Rig& rig) {
  for (int64_t group : {2, 4, 8}) {
    const Options o{.repeats = group == 8 ? 1 : 2};
    Shape s{.name = "rank of eight", .group = group, .queries = 64 * K, .keys = M, .wide = true};
    rig.run(s, o);
    s.wide = false;
    s.fold = true;
    rig.run(s, o);
  }
  const Options o{.repeats = 3};
  for (const auto& [q, k] : {std::pair{4 * K, 128 * K},
                             {16 * K, 128 * K},
                             {64 * K, 8 * K},
                             {64 * K, 16 * K},
                             {64 * K, 32 * K},
                             {64 * K, 64 * K},
                             {64 * K, 128 * K},
                             {64 * K, 256 * K},
                             {128 * K, 128 * K}}) {
    rig.run({.name = "rectangle", .group = 8, .queries = q, .keys = k, .fold = true}, o);
    if (q != 64 * K || k < 64 * K || k > 128 * K) continue;
    for (int64_t group : {2, 8}) rig.run({.name = "rectangle", .group = group, .queries = q, .keys = k}, o);
  }
}

void run_causal(Rig& rig) {
  const Options o{.repeats = 3};
  const Options checked{.repeats = 3, .check_rows = 24};
  for (int64_t length : {4 * K, 8 * K, 16 * K, 32 * K, 64 * K, 128 * K, 256 * K}) {
    rig.run(square(8, length), length == 64 * K ? checked : o);
  }
  for (int64_t length : {16 * K, 64 * K, 256 * K}) rig.run(square(2, length), o);
  Shape right = square(8, 64 * K);
  right.name = "bottom right";
  right.mask = Mask::causal_bottom_right;
  rig.run(right, o);
  right.keys = 64 * K + 1000;
  rig.run(right, checked);
  // Several key heads in one call, for short sequences.
  for (int64_t length : {2 * K, 8 * K, 16 * K}) {
    Shape many = square(4, length);
    many.key_heads = 8;
    rig.run(many, checked);
  }
  for (Mask mask : {Mask::causal_top_left, Mask::causal_bottom_right}) {
    Shape window = square(8, 64 * K);
    window.mask = mask;
    window.name = "window";
    window.window = 4096;
    rig.run(window, checked);
  }
  Shape halo = square(8, 64 * K);
  halo.mask = Mask::causal_bottom_right;
  halo.name = "window with halo";
  halo.keys += 4095;
  halo.window = 4096;
  rig.run(halo, checked);
}

void run_sustained(Rig& rig) {
  const Options o{.sustain_s = 5};
  rig.run({.name = "sustained", .group = 8, .queries = 64 * K, .keys = M, .wide = true}, o);
  for (int64_t queries : {16 * K, 64 * K}) {
    rig.run({.name = "sustained", .group = 8, .queries = queries, .keys = 128 * K, .fold = true}, o);
  }
  rig.run({.name = "sustained", .group = 8, .queries = 64 * K, .keys = 128 * K}, o);
  for (int64_t length : {32 * K, 64 * K}) {
    Shape causal = square(8, length);
    causal.name = "sustained";
    rig.run(causal, o);
  }
}

// Every plan on offer for the trainer's two shapes, against the library's own choice.
void run_plans(Rig& rig) {
  const Shape shapes[] = {{.name = "plans", .group = 8, .queries = 16 * K, .keys = 128 * K, .fold = true},
                          square(8, 32 * K)};
  for (Shape s : shapes) {
    rig.run(s, {.repeats = 5});
    for (s.plan = 0; s.plan < 8; ++s.plan) rig.run(s, {.repeats = 5});
  }
}

// Folded against grouped heads where keys are few.
void run_few_keys(Rig& rig) {
  for (int64_t keys : {4 * K, 8 * K, int64_t{16896}, 32 * K, int64_t{33792}}) {
    for (bool fold : {false, true}) {
      rig.run({.name = "few keys", .group = 8, .queries = 64 * K, .keys = keys, .fold = fold}, {.repeats = 5});
    }
  }
}

void run_mapped(Rig& rig) {
  if (!rig.collecting()) rig.say("mapped", mapped_libraries());
}

}  // namespace

const std::vector<Section>& sections() {
  static const std::vector<Section> all = {
      {"info", false, true, true, run_info},
      {"builds", false, true, true, run_builds},
      {"offset", true, true, false, run_offset},
      {"types", false, true, false, run_types},
      {"determinism", true, true, false, run_determinism},
      {"sustained", true, true, false, run_sustained},
      {"blocks", true, true, false, run_blocks},
      {"plans", true, true, false, run_plans},
      {"few_keys", true, true, false, run_few_keys},
      {"causal", true, true, false, run_causal},
      {"speed", true, true, false, run_speed},
      {"lengths", true, true, false, run_lengths},
      {"tiny", false, true, false, run_tiny},
      {"ragged", true, true, false, run_ragged},
      {"empty", true, true, false, run_empty},
      {"mapped", false, true, false, run_mapped},
      {"switch", false, false, false, run_switch},
  };
  return all;
}

}  // namespace megatoken::probe
