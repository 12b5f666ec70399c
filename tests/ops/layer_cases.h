// Rows of the op table test: norms, rope, SwiGLU, cross-entropy.
#pragma once

#include "ops/rig.h"

namespace megatoken {

inline void rms_norm_cases(std::vector<OpCase>& cases) {
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64, int64>>{{1, 3}, {7, 33}, {130, 256}, {3000, 6}, {2, 4100}, {0, 8}}) {
    const std::string size = "_" + std::to_string(rows) + "x" + std::to_string(cols);
    for (const DType type : float_types()) {
      cases.push_back({"rms_norm_" + short_name(type) + size, [=, rows = rows, cols = cols](Rig& rig) {
                         Tensor& x = rig.random("x", rows, cols, type, 3);
                         Tensor& weight = rig.random("weight", 1, cols, type);
                         Tensor& y = rig.output("y", rows, cols, type);
                         rig.run([&](Stream& s) { rig.ops.rms_norm(s, {x, weight, y, 1e-5f}); });
                         rig.expect_close(y, reference::rms_norm(Rig::values(x), Rig::values(weight), 1e-5),
                                          tolerance_of(type));
                       }});
      for (const DType dy_type : float_types()) {
        for (const DType dx_type : float_types()) {
          for (int residual = 0; residual < 3; ++residual) {  // none, another matrix, dx itself
            const std::string name = "rms_norm_backward_" + short_name(type) + "_" + short_name(dy_type) + "_" +
                                     short_name(dx_type) + size + "_" + std::to_string(residual);
            cases.push_back({name, [=, rows = rows, cols = cols](Rig& rig) {
                               Tensor& x = rig.random("x", rows, cols, type, 3);
                               Tensor& weight = rig.random("weight", 1, cols, type);
                               Tensor& dy = rig.random("dy", rows, cols, dy_type);
                               Tensor& r = rig.random("residual", rows, cols, dx_type);
                               Tensor& dx = residual == 2 ? r : rig.output("dx", rows, cols, dx_type);
                               dx.written = true;
                               Tensor& dweight = rig.inout("dweight", 1, cols, DType::f32);
                               RmsNormBackward op{x, weight, dy, {}, dx, dweight, 1e-5f};
                               if (residual > 0) op.residual = r;
                               rig.run([&](Stream& s) { rig.ops.rms_norm_backward(s, op); });
                               auto expected = reference::rms_norm_backward(Rig::values(x), Rig::values(weight),
                                                                            Rig::values(dy), 1e-5);
                               const Matrix added = Rig::values(r), before = Rig::values(dweight);
                               for (std::size_t i = 0; residual > 0 && i < added.data.size(); ++i)
                                 expected.dx.data[i] += added.data[i];
                               for (std::size_t i = 0; i < before.data.size(); ++i)
                                 expected.dweight.data[i] += before.data[i];
                               rig.expect_close(dx, expected.dx, 2 * tolerance_of(dx_type));
                               rig.expect_close(dweight, expected.dweight, 2 * tolerance_of(type));
                             }});
          }
        }
      }
    }
  }
}

struct RopeInputs {
  Tensor& positions;
  Tensor& frequency_index;
  Tensor& inverse_frequency;

  reference::Rope rope(bool indexed, double factor) const {
    reference::Rope r{Rig::values(positions), Rig::values(frequency_index), Rig::values(inverse_frequency), factor};
    if (!indexed) r.frequency_index = Matrix(r.positions.rows, 1);
    return r;
  }
};

// Positions up to four million; base 1e6.
inline RopeInputs rope_inputs(Rig& rig, int64 rows, int64 head_dim) {
  Matrix frequency(3, head_dim / 2);
  for (int64 t = 0; t < 3; ++t)
    for (int64 j = 0; j < head_dim / 2; ++j)
      frequency(t, j) =
          std::pow(1e6, -2.0 * static_cast<double>(j) / static_cast<double>(head_dim)) / static_cast<double>(t + 1);
  return {rig.indices("positions", rows, 4'000'000), rig.indices("frequency_index", rows, 3),
          rig.filled("inverse_frequency", frequency, DType::f32)};
}

inline void norm_rope_cases(std::vector<OpCase>& cases) {
  struct Shape {
    int64 rows, heads, head_dim;
  };
  for (const Shape& shape :
       std::vector<Shape>{{1, 1, 2}, {5, 3, 64}, {70, 2, 128}, {33, 1, 80}, {2100, 2, 6}, {0, 2, 8}}) {
    for (const DType type : float_types()) {
      for (int mode = 0; mode < 8; ++mode) {
        const bool norm = (mode & 1) != 0, indexed = (mode & 2) != 0, in_place = (mode & 4) != 0;
        const double factor = indexed ? 1.25 : 1.0;
        const int64 cols = shape.heads * shape.head_dim;
        const std::string name = "_" + short_name(type) + "_" + std::to_string(shape.rows) + "x" +
                                 std::to_string(shape.heads) + "x" + std::to_string(shape.head_dim) + "_" +
                                 (norm ? "norm_" : "") + (indexed ? "indexed_" : "") +
                                 (in_place ? "in_place" : "apart");
        const auto forward_op = [=](const RopeInputs& in, Tensor& x, Tensor& weight) {
          NormRope op;
          op.x = x;
          if (norm) op.weight = weight;
          op.positions = in.positions;
          if (indexed) op.frequency_index = in.frequency_index;
          op.inverse_frequency = in.inverse_frequency;
          op.attention_factor = static_cast<float>(factor);
          op.eps = 1e-5f;
          op.head_dim = shape.head_dim;
          return op;
        };
        cases.push_back({"norm_rope" + name, [=](Rig& rig) {
                           const RopeInputs in = rope_inputs(rig, shape.rows, shape.head_dim);
                           Tensor& x = rig.random("x", shape.rows, cols, type, 2);
                           Tensor& weight = rig.random("weight", 1, shape.head_dim, type);
                           Tensor& y = in_place ? x : rig.output("y", shape.rows, cols, type);
                           y.written = true;
                           NormRope op = forward_op(in, x, weight);
                           op.y = y;
                           rig.run([&](Stream& s) { rig.ops.norm_rope(s, op); });
                           const Matrix w = Rig::values(weight);
                           rig.expect_close(y,
                                            reference::norm_rope(Rig::values(x), norm ? &w : nullptr,
                                                                 in.rope(indexed, factor), shape.head_dim, 1e-5),
                                            tolerance_of(type));
                         }});
        for (const DType dy_type : float_types()) {
          if (in_place && dy_type != type) continue;
          cases.push_back({"norm_rope_backward_" + short_name(dy_type) + name, [=](Rig& rig) {
                             const RopeInputs in = rope_inputs(rig, shape.rows, shape.head_dim);
                             Tensor& x = rig.random("x", shape.rows, cols, type, 2);
                             Tensor& weight = rig.random("weight", 1, shape.head_dim, type);
                             Tensor& dy = rig.random("dy", shape.rows, cols, dy_type);
                             Tensor& dx = in_place ? dy : rig.output("dx", shape.rows, cols, type);
                             dx.written = true;
                             Tensor& dweight = rig.inout("dweight", 1, shape.head_dim, DType::f32);
                             NormRopeBackward op{forward_op(in, x, weight), dy, dx, {}};
                             if (norm)
                               op.dweight = dweight;
                             else
                               op.forward.x = View();  // rotation alone is linear
                             rig.run([&](Stream& s) { rig.ops.norm_rope_backward(s, op); });
                             const Matrix w = Rig::values(weight);
                             auto expected = reference::norm_rope_backward(Rig::values(x), norm ? &w : nullptr,
                                                                           in.rope(indexed, factor), Rig::values(dy),
                                                                           shape.head_dim, 1e-5);
                             const Matrix before = Rig::values(dweight);
                             for (std::size_t i = 0; i < before.data.size(); ++i)
                               expected.dweight.data[i] = before.data[i] + (norm ? expected.dweight.data[i] : 0);
                             rig.expect_close(dx, expected.dx, 2 * tolerance_of(type));
                             rig.expect_close(dweight, expected.dweight, 1e-6);
                           }});
        }
      }
    }
  }
}

inline void swiglu_cases(std::vector<OpCase>& cases) {
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64, int64>>{{1, 1}, {9, 33}, {130, 256}, {2, 70000}, {0, 8}}) {
    for (const DType type : float_types()) {
      const std::string name = "_" + short_name(type) + "_" + std::to_string(rows) + "x" + std::to_string(cols);
      cases.push_back({"swiglu" + name, [=, rows = rows, cols = cols](Rig& rig) {
                         Tensor& gate_up = rig.random("gate_up", rows, 2 * cols, type, 30);  // far into saturation
                         Tensor& act = rig.output("act", rows, cols, type);
                         rig.run([&](Stream& s) { rig.ops.swiglu(s, {gate_up, act}); });
                         rig.expect_close(act, reference::swiglu(Rig::values(gate_up)), tolerance_of(type));
                       }});
      for (const bool in_place : {false, true}) {
        cases.push_back(
            {"swiglu_backward" + name + (in_place ? "_in_place" : "_apart"), [=, rows = rows, cols = cols](Rig& rig) {
               Tensor& gate_up = rig.random("gate_up", rows, 2 * cols, type, 2);
               Tensor& dact = rig.random("dact", rows, cols, type);
               Tensor& d = in_place ? gate_up : rig.output("dgate_up", rows, 2 * cols, type);
               d.written = true;
               rig.run([&](Stream& s) { rig.ops.swiglu_backward(s, {gate_up, dact, d}); });
               rig.expect_close(d, reference::swiglu_backward(Rig::values(gate_up), Rig::values(dact)),
                                tolerance_of(type));
             }});
      }
    }
  }
}

inline void cross_entropy_cases(std::vector<OpCase>& cases) {
  enum class Gradient { none, f32, bf16, in_place };
  struct Kind {
    Gradient gradient;
    const char* name;
  };
  for (const auto& [rows, cols] :
       std::vector<std::pair<int64, int64>>{{1, 1}, {6, 2}, {33, 100}, {3, 9001}, {200, 33}, {0, 10}}) {
    for (const Kind kind : {Kind{Gradient::none, "eval"}, Kind{Gradient::f32, "f32"}, Kind{Gradient::bf16, "bf16"},
                            Kind{Gradient::in_place, "in_place"}}) {
      const std::string name = "_" + std::to_string(rows) + "x" + std::to_string(cols) + "_" + kind.name;
      cases.push_back({"cross_entropy" + name, [=, rows = rows, cols = cols](Rig& rig) {
                         Tensor& logits = rig.random("logits", rows, cols, DType::f32, 4);
                         Tensor& labels = rig.indices("labels", rows, cols);
                         Tensor& loss = rig.output("loss", rows, 1, DType::f32);
                         Tensor& correct = rig.output("correct", rows, 1, DType::f32);
                         Tensor& entropy = rig.output("entropy", rows, 1, DType::f32);
                         CrossEntropy op{logits, labels, loss, correct, entropy, {}};
                         Tensor* d = nullptr;
                         if (kind.gradient == Gradient::in_place) d = &logits;
                         if (kind.gradient == Gradient::f32) d = &rig.output("dlogits", rows, cols, DType::f32);
                         if (kind.gradient == Gradient::bf16) d = &rig.output("dlogits", rows, cols, DType::bf16);
                         if (d != nullptr) {
                           d->written = true;
                           op.dlogits = *d;
                         }
                         rig.run([&](Stream& s) { rig.ops.cross_entropy(s, op); });
                         const auto expected = reference::cross_entropy(Rig::values(logits), Rig::values(labels));
                         rig.expect_close(loss, expected.loss, 2e-6);
                         rig.expect_close(entropy, expected.entropy, 2e-6);
                         EXPECT_EQ(Rig::results(correct).data, expected.correct.data);
                         if (d != nullptr) rig.expect_close(*d, expected.dlogits, 2 * tolerance_of(d->dtype));
                       }});
    }
  }
}

}  // namespace megatoken
