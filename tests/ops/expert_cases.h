// Rows of the op table test: routers, sorting by expert, combination, grouped products. Experts without tokens, one
// with all of them, equal probabilities and no tokens at all are among them.
#pragma once

#include <numeric>

#include "ops/rig.h"

namespace megatoken {

namespace reference {

inline Matrix softmax_rows(const Matrix& z) {
  Matrix p = z;
  for (int64 t = 0; t < z.rows; ++t) {
    double largest = -INFINITY, sum = 0;
    for (int64 e = 0; e < z.cols; ++e) largest = std::max(largest, z(t, e));
    for (int64 e = 0; e < z.cols; ++e) sum += p(t, e) = std::exp(z(t, e) - largest);
    for (int64 e = 0; e < z.cols; ++e) p(t, e) /= sum;
  }
  return p;
}

struct Choice {
  Matrix experts, weights;
};
inline Choice route(const Matrix& z, int64 k, bool normalize) {
  const Matrix p = softmax_rows(z);
  Choice choice{Matrix(z.rows, k), Matrix(z.rows, k)};
  for (int64 t = 0; t < z.rows; ++t) {
    std::vector<int64> order(static_cast<std::size_t>(z.cols));
    std::iota(order.begin(), order.end(), int64{0});
    std::stable_sort(order.begin(), order.end(), [&](int64 a, int64 b) { return z(t, a) > z(t, b); });
    double sum = 0;
    for (int64 s = 0; s < k; ++s) sum += p(t, order[static_cast<std::size_t>(s)]);
    for (int64 s = 0; s < k; ++s) {
      choice.experts(t, s) = static_cast<double>(order[static_cast<std::size_t>(s)]);
      choice.weights(t, s) = p(t, order[static_cast<std::size_t>(s)]) / (normalize ? sum : 1);
    }
  }
  return choice;
}

struct Sorted {
  Matrix offsets, source, position;
};
inline Sorted sort_by_expert(const Matrix& experts, int64 count) {
  Sorted sorted{Matrix(1, count + 1), Matrix(experts.rows * experts.cols, 1), Matrix(experts.rows, experts.cols)};
  int64 row = 0;
  for (int64 e = 0; e < count; ++e) {
    for (int64 t = 0; t < experts.rows; ++t)
      for (int64 s = 0; s < experts.cols; ++s) {
        if (static_cast<int64>(experts(t, s)) != e) continue;
        sorted.position(t, s) = static_cast<double>(row);
        sorted.source(row++, 0) = static_cast<double>(t);
      }
    sorted.offsets(0, e + 1) = static_cast<double>(row);
  }
  return sorted;
}

}  // namespace reference

inline void router_cases(std::vector<OpCase>& cases) {
  struct Shape {
    int64 tokens, experts, k;
    bool ties;
  };
  for (const Shape& s : std::vector<Shape>{{1, 1, 1, false},
                                           {5, 3, 3, false},
                                           {37, 8, 2, false},
                                           {300, 128, 8, false},
                                           {9, 130, 1, false},
                                           {64, 1000, 6, false},
                                           {0, 8, 2, false},
                                           {40, 60, 4, true},
                                           {17, 4, 2, true}})
    for (const bool normalize : {false, true}) {
      const std::string name = "_" + std::to_string(s.tokens) + "x" + std::to_string(s.experts) + "_top" +
                               std::to_string(s.k) + (s.ties ? "_ties" : "") + (normalize ? "_normalized" : "");
      const auto logits_of = [s](Rig& rig, double scale) {
        Matrix z(s.tokens, s.experts);
        for (double& v : z.data)
          v = s.ties ? static_cast<double>(rig.draw(3)) : static_cast<float>(scale * rig.normal());
        return z;
      };
      cases.push_back(
          {"router" + name, [=](Rig& rig) {
             Tensor& logits = rig.filled("logits", logits_of(rig, 3), DType::f32);
             logits.written = true;
             Tensor& experts = rig.output("experts", s.tokens, s.k, DType::i32);
             Tensor& weights = rig.output("weights", s.tokens, s.k, DType::f32);
             rig.run([&](Stream& stream) { rig.ops.router(stream, {logits, experts, weights, normalize}); });
             const auto choice = reference::route(Rig::values(logits), s.k, normalize);
             EXPECT_EQ(Rig::results(experts).data, choice.experts.data);
             rig.expect_close(weights, choice.weights, 1e-6);
             rig.expect_close(logits, reference::softmax_rows(Rig::values(logits)), 1e-6);
           }});
      for (const DType type : float_types())
        for (const bool balanced : {false, true})
          cases.push_back({"router_backward_" + short_name(type) + name + (balanced ? "_balanced" : ""), [=](Rig& rig) {
                             const bool in_place = type == DType::f32 && balanced;
                             Tensor& logits = rig.filled("logits", logits_of(rig, 2), DType::f32);
                             const Matrix z = Rig::values(logits);
                             const auto choice = reference::route(z, s.k, normalize);
                             Tensor& experts = rig.filled("experts", choice.experts, DType::i32);
                             Tensor& weights = rig.filled("weights", choice.weights, DType::f32);
                             Tensor& dweights = rig.random("dweights", s.tokens, s.k, DType::f32);
                             Tensor& balance = rig.random("balance", 1, s.experts, DType::f32);
                             Matrix mask(s.tokens, 1);
                             for (double& v : mask.data) v = static_cast<double>(rig.draw(3) > 0);
                             Tensor& counted = rig.filled("counted", mask, DType::u8);
                             Tensor& dlogits = in_place ? logits : rig.output("dlogits", s.tokens, s.experts, type);
                             dlogits.written = true;
                             RouterBackward op{logits, experts, weights, dweights, {}, {}, dlogits, normalize};
                             if (balanced) {
                               op.balance = balance;
                               op.counted = counted;
                             }
                             rig.run([&](Stream& stream) { rig.ops.router_backward(stream, op); });
                             const Matrix p = reference::softmax_rows(z), dw = Rig::values(dweights),
                                          b = Rig::values(balance);
                             Matrix expected(s.tokens, s.experts);
                             for (int64 t = 0; t < s.tokens; ++t) {
                               Matrix g(1, s.experts);
                               double total = 0, inner = 0, mean = 0;
                               for (int64 i = 0; i < s.k; ++i) {
                                 total += p(t, static_cast<int64>(choice.experts(t, i)));
                                 inner += dw(t, i) * choice.weights(t, i);
                               }
                               for (int64 e = 0; e < s.experts && balanced; ++e) g(0, e) = mask(t, 0) * b(0, e);
                               for (int64 i = 0; i < s.k; ++i)
                                 g(0, static_cast<int64>(choice.experts(t, i))) +=
                                     normalize ? (dw(t, i) - inner) / total : dw(t, i);
                               for (int64 e = 0; e < s.experts; ++e) mean += g(0, e) * p(t, e);
                               for (int64 e = 0; e < s.experts; ++e) expected(t, e) = p(t, e) * (g(0, e) - mean);
                             }
                             // One expert: the gradient is 0 but for rounding.
                             if (s.experts > 1 && !(normalize && s.k == s.experts && !balanced))
                               rig.expect_close(dlogits, expected, type == DType::bf16 ? 3e-3 : 4e-6);
                           }});
    }
}

inline void balance_cases(std::vector<OpCase>& cases) {
  for (const auto& [tokens, experts, k] :
       std::vector<std::tuple<int64, int64, int64>>{{1, 1, 1}, {400, 6, 2}, {333, 128, 8}, {0, 4, 2}})
    cases.push_back({"router_statistics_" + std::to_string(tokens) + "x" + std::to_string(experts),
                     [=, tokens = tokens, experts = experts, k = k](Rig& rig) {
                       Tensor& p = rig.random("p", tokens, experts, DType::f32);
                       Matrix chosen(tokens, k), mask(tokens, 1);
                       for (double& v : chosen.data)
                         v = static_cast<double>(rig.draw(static_cast<std::uint64_t>(experts)));
                       for (double& v : mask.data) v = static_cast<double>(rig.draw(3) > 0);
                       Tensor& choice = rig.filled("experts", chosen, DType::i32);
                       Tensor& counted = rig.filled("counted", mask, DType::u8);
                       Tensor& sums = rig.inout("sums", 1, 2 * experts, DType::f64);
                       rig.run([&](Stream& s) { rig.ops.router_statistics(s, {p, choice, counted, sums}); });
                       Matrix expected = Rig::values(sums);
                       const Matrix x = Rig::values(p);
                       for (int64 t = 0; t < tokens; ++t) {
                         for (int64 i = 0; i < k; ++i) expected(0, static_cast<int64>(chosen(t, i))) += mask(t, 0);
                         for (int64 e = 0; e < experts; ++e) expected(0, experts + e) += mask(t, 0) * x(t, e);
                       }
                       rig.expect_close(sums, expected, 1e-12);
                     }});
  for (const int64 parts : {1, 3})
    for (const double rows : {0.0, 700.0})
      for (const int64 experts : {1, 5, 300})
        cases.push_back(
            {"balance_loss_" + std::to_string(parts) + "_of_" + std::to_string(experts) + (rows == 0 ? "_empty" : ""),
             [=](Rig& rig) {
               Tensor& sums = rig.random("sums", parts, 2 * experts, DType::f64, 100);
               Tensor& loss = rig.output("loss", 1, 1, DType::f32);
               Tensor& gradient = rig.output("gradient", 1, experts, DType::f32);
               rig.run([&](Stream& s) { rig.ops.balance_loss(s, {sums, rows, 2.5, loss, gradient}); });
               const Matrix v = Rig::values(sums);
               Matrix want(1, 1), slope(1, experts);
               for (int64 e = 0; e < experts && rows > 0; ++e) {
                 double count = 0, sum = 0;
                 for (int64 r = 0; r < parts; ++r) {
                   count += v(r, e);
                   sum += v(r, experts + e);
                 }
                 want(0, 0) += static_cast<double>(experts) * count / rows * sum / rows;
                 slope(0, e) = 2.5 * static_cast<double>(experts) * count / rows / rows;
               }
               rig.expect_close(loss, want, 1e-6);
               rig.expect_close(gradient, slope, 1e-6);
             }});
}

// How assignments fall on experts.
enum class Spread { even, few, one };

inline Matrix spread_choice(Rig& rig, int64 tokens, int64 k, int64 experts, Spread spread) {
  Matrix choice(tokens, k);
  const auto bound = static_cast<std::uint64_t>(spread == Spread::even ? experts : (experts + 2) / 3);
  for (double& v : choice.data)
    v = spread == Spread::one ? static_cast<double>(experts - 1) : static_cast<double>(rig.draw(bound));
  return choice;
}

inline void sort_cases(std::vector<OpCase>& cases) {
  for (const auto& [tokens, k, experts] : std::vector<std::tuple<int64, int64, int64>>{
           {1, 1, 1}, {7, 2, 5}, {512, 2, 3}, {700, 4, 60}, {513, 8, 128}, {1025, 1, 2000}, {0, 2, 4}})
    for (const auto& [spread, word] :
         {std::pair(Spread::even, "even"), std::pair(Spread::few, "few"), std::pair(Spread::one, "one")})
      cases.push_back(
          {"sort_by_expert_" + std::to_string(tokens) + "x" + std::to_string(k) + "_" + std::to_string(experts) + "_" +
               word,
           [=, tokens = tokens, k = k, experts = experts, spread = spread](Rig& rig) {
             Tensor& choice = rig.filled("experts", spread_choice(rig, tokens, k, experts, spread), DType::i32);
             Tensor& offsets = rig.output("offsets", 1, experts + 1, DType::i32);
             Tensor& source = rig.output("source", tokens * k, 1, DType::i32);
             Tensor& position = rig.output("position", tokens, k, DType::i32);
             const View workspace = rig.workspace(sort_by_expert_workspace(tokens * k, experts));
             rig.run([&](Stream& s) { rig.ops.sort_by_expert(s, {choice, offsets, source, position, workspace}); });
             const auto want = reference::sort_by_expert(Rig::values(choice), experts);
             EXPECT_EQ(Rig::results(offsets).data, want.offsets.data);
             EXPECT_EQ(Rig::results(source).data, want.source.data);
             EXPECT_EQ(Rig::results(position).data, want.position.data);
           }});
}

inline Matrix permutation(Rig& rig, int64 tokens, int64 k) {
  Matrix position(tokens, k);
  std::iota(position.data.begin(), position.data.end(), 0.0);
  for (std::size_t i = position.data.size(); i > 1; --i) std::swap(position.data[i - 1], position.data[rig.draw(i)]);
  return position;
}

inline void combine_cases(std::vector<OpCase>& cases) {
  struct Shape {
    int64 tokens, k, cols;
  };
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1}, {33, 8, 130}, {70, 3, 64}, {5, 2, 700}, {0, 2, 8}})
    for (const DType in : float_types())
      for (const DType out_type : float_types())
        for (int mode = 0; mode < 6; ++mode) {
          const bool weighted = mode % 2 == 0;
          const int addend = mode / 2;  // none, another matrix, out itself
          cases.push_back({"combine_experts_" + short_name(in) + "_" + short_name(out_type) + "_" +
                               std::to_string(shape.tokens) + "x" + std::to_string(shape.k) + "x" +
                               std::to_string(shape.cols) + (weighted ? "_weighted" : "") + std::to_string(addend),
                           [=](Rig& rig) {
                             const bool direct = shape.k == 1 && weighted;
                             Tensor& rows = rig.random("rows", shape.tokens * shape.k, shape.cols, in);
                             Tensor& position =
                                 rig.filled("position", permutation(rig, shape.tokens, shape.k), DType::i32);
                             Tensor& weights = rig.random("weights", shape.tokens, shape.k, DType::f32);
                             Tensor& other = rig.random("addend", shape.tokens, shape.cols, out_type);
                             Tensor& out = addend == 2 ? other : rig.output("out", shape.tokens, shape.cols, out_type);
                             out.written = true;
                             CombineExperts op{rows, {}, {}, {}, out};
                             if (!direct) op.position = position;
                             if (weighted) op.weights = weights;
                             if (addend > 0) op.addend = other;
                             rig.run([&](Stream& s) { rig.ops.combine_experts(s, op); });
                             Matrix expected(shape.tokens, shape.cols);
                             const Matrix x = Rig::values(rows), w = Rig::values(weights), to = Rig::values(position),
                                          c = Rig::values(other);
                             for (int64 t = 0; t < shape.tokens; ++t)
                               for (int64 j = 0; j < shape.cols; ++j) {
                                 double sum = addend > 0 ? c(t, j) : 0;
                                 for (int64 s = 0; s < shape.k; ++s)
                                   sum += (weighted ? w(t, s) : 1) * x(direct ? t : static_cast<int64>(to(t, s)), j);
                                 expected(t, j) = sum;
                               }
                             rig.expect_close(out, expected, out_type == DType::bf16 ? 4e-3 : 1e-6);  // one rounding
                           }});
        }
}

inline void expert_swiglu_cases(std::vector<OpCase>& cases) {
  struct Shape {
    int64 tokens, k, cols;
  };
  for (const Shape& shape : std::vector<Shape>{{1, 1, 1}, {9, 4, 33}, {20, 2, 768}, {6, 1, 64}, {0, 2, 8}})
    for (const DType type : float_types())
      cases.push_back({"expert_swiglu_backward_" + short_name(type) + "_" + std::to_string(shape.tokens) + "x" +
                           std::to_string(shape.k) + "x" + std::to_string(shape.cols),
                       [=](Rig& rig) {
                         const int64 m = shape.tokens * shape.k, n = shape.cols;
                         Tensor& gate_up = rig.inout("gate_up", m, 2 * n, type);
                         Tensor& dact = rig.inout("dact", m, n, type);
                         Tensor& position = rig.filled("position", permutation(rig, shape.tokens, shape.k), DType::i32);
                         Tensor& weights = rig.random("weights", shape.tokens, shape.k, DType::f32);
                         Tensor& dweights = rig.output("dweights", shape.tokens, shape.k, DType::f32);
                         ExpertSwigluBackward op{gate_up, dact, position, weights, dweights};
                         if (shape.k == 1) op.position = View();
                         rig.run([&](Stream& s) { rig.ops.expert_swiglu_backward(s, op); });
                         const Matrix gu = Rig::values(gate_up), d = Rig::values(dact), to = Rig::values(position);
                         const Matrix w_of = Rig::values(weights);
                         Matrix dgu(m, 2 * n), act(m, n), dw(shape.tokens, shape.k);
                         for (int64 t = 0; t < shape.tokens; ++t)
                           for (int64 s = 0; s < shape.k; ++s) {
                             const int64 r = shape.k == 1 ? t : static_cast<int64>(to(t, s));
                             const double w = w_of(t, s);
                             for (int64 j = 0; j < n; ++j) {
                               const double g = gu(r, j), u = gu(r, n + j), sig = 1 / (1 + std::exp(-g));
                               act(r, j) = w * g * sig * u;
                               dw(t, s) += g * sig * u * d(r, j);
                               dgu(r, j) = w * d(r, j) * u * sig * (1 + g * (1 - sig));
                               dgu(r, n + j) = w * d(r, j) * g * sig;
                             }
                           }
                         rig.expect_close(gate_up, dgu, tolerance_of(type));
                         rig.expect_close(dact, act, tolerance_of(type));
                         rig.expect_close(dweights, dw, 2e-6);
                       }});
  for (const auto& [rows, cols] : std::vector<std::pair<int64, int64>>{{1, 1}, {300, 1}, {5, 7}, {0, 1}}) {
    const std::string size = "_" + std::to_string(rows) + "x" + std::to_string(cols);
    cases.push_back({"sigmoid" + size, [=, rows = rows, cols = cols](Rig& rig) {
                       Tensor& x = rig.inout("x", rows, cols, DType::f32, 20);
                       rig.run([&](Stream& s) { rig.ops.sigmoid(s, {x, x}); });
                       Matrix expected = Rig::values(x);
                       for (double& v : expected.data) v = 1 / (1 + std::exp(-v));
                       rig.expect_close(x, expected, 1e-6);
                     }});
    for (const DType type : float_types())
      cases.push_back({"sigmoid_backward_" + short_name(type) + size, [=, rows = rows, cols = cols](Rig& rig) {
                         Tensor& y = rig.random("y", rows, cols, DType::f32);
                         Tensor& dy = rig.random("dy", rows, cols, DType::f32);
                         Tensor& dx = rig.output("dx", rows, cols, type);
                         rig.run([&](Stream& s) { rig.ops.sigmoid_backward(s, {y, dy, dx}); });
                         Matrix expected = Rig::values(dy);
                         const Matrix s_of = Rig::values(y);
                         for (std::size_t i = 0; i < expected.data.size(); ++i) {
                           const double v = s_of.data[i];
                           expected.data[i] *= v * (1 - v);
                         }
                         rig.expect_close(dx, expected, tolerance_of(type));
                       }});
  }
}

inline void grouped_gemm_cases(std::vector<OpCase>& cases) {
  struct Shape {
    const char* name;
    std::vector<int64> rows;  // of each expert
    int64 n, k;
    bool aligned;
  };
  const std::vector<Shape> shapes = {
      {"single", {5}, 3, 7, false},
      {"uneven", {5, 0, 17, 1}, 19, 33, false},
      {"one_has_all", {0, 0, 65, 0}, 24, 40, false},
      {"nothing", {0, 0, 0}, 8, 8, false},
      {"tiles", {130, 0, 256, 33, 1, 128}, 192, 264, true},
      {"one_has_all_tiles", {0, 300, 0, 0}, 128, 64, true},
      {"first_and_last_empty", {0, 7, 64, 0}, 72, 136, true},
      {"many", std::vector<int64>(128, 3), 64, 32, true},
      {"nothing_aligned", {0, 0}, 64, 64, true},
  };
  for (const Shape& shape : shapes)
    for (const DType type : float_types())
      for (const auto& [product, word] :
           {std::pair(GroupedProduct::forward, "forward"), std::pair(GroupedProduct::input_gradient, "input_gradient"),
            std::pair(GroupedProduct::weight_gradient, "weight_gradient")})
        cases.push_back({std::string("grouped_gemm_") + short_name(type) + "_" + word + "_" + shape.name,
                         [=, product = product](Rig& rig) {
                           const auto groups = static_cast<int64>(shape.rows.size());
                           Matrix offsets_values(1, groups + 1);
                           for (int64 e = 0; e < groups; ++e)
                             offsets_values(0, e + 1) =
                                 offsets_values(0, e) + static_cast<double>(shape.rows[static_cast<std::size_t>(e)]);
                           const auto m = static_cast<int64>(offsets_values(0, groups));
                           const bool weights = product == GroupedProduct::weight_gradient;
                           const bool forward = product == GroupedProduct::forward;
                           if (shape.aligned) rig.set_layout(Layout::aligned);
                           Tensor& a = rig.random("a", m, forward ? shape.k : shape.n, type);
                           Tensor& b = rig.random("b", weights ? m : groups * shape.n, shape.k, type);
                           Tensor& offsets = rig.filled("offsets", offsets_values, DType::i32);
                           Tensor& d = weights ? rig.inout("d", groups * shape.n, shape.k, DType::f32)
                                               : rig.output("d", m, forward ? shape.n : shape.k, type);
                           GroupedGemm op{product, a, b, d, offsets, {}};
                           op.workspace = rig.workspace(rig.ops.grouped_gemm_workspace(op));
                           rig.run([&](Stream& s) { rig.ops.grouped_gemm(s, op); });
                           const Matrix x = Rig::values(a), y = Rig::values(b);
                           Matrix expected = weights ? Rig::values(d) : Matrix(d.rows, d.cols);
                           for (int64 e = 0; e < groups; ++e)
                             for (auto r = static_cast<int64>(offsets_values(0, e));
                                  r < static_cast<int64>(offsets_values(0, e + 1)); ++r)
                               for (int64 i = 0; i < shape.n; ++i)
                                 for (int64 j = 0; j < shape.k; ++j) {
                                   if (forward)
                                     expected(r, i) += x(r, j) * y(e * shape.n + i, j);
                                   else if (weights)
                                     expected(e * shape.n + i, j) += x(r, i) * y(r, j);
                                   else
                                     expected(r, j) += x(r, i) * y(e * shape.n + i, j);
                                 }
                           rig.expect_close(d, expected, weights ? 3e-6 : tolerance_of(type));
                         }});
}

inline void expert_cases(std::vector<OpCase>& cases) {
  router_cases(cases);
  balance_cases(cases);
  sort_cases(cases);
  combine_cases(cases);
  expert_swiglu_cases(cases);
  grouped_gemm_cases(cases);
}

}  // namespace megatoken
