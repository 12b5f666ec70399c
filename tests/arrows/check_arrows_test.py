"""check_arrows.py must find every kind of planted violation, at its file and line, and nothing in a clean tree."""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_arrows  # noqa: E402

CLEAN = {
    "src/base/error.h": "#pragma once\n#include <string>\n",
    "src/tensor/view.h": '#pragma once\n#include "base/error.h"\n',
    "src/device/device.h": '#pragma once\n#include "tensor/view.h"\n',
    "src/device/cuda/stream.cpp": '#include <cuda_runtime.h>\n#include "device/device.h"\n',
    "src/ops/norm_cuda.cu": "#include <cuda_bf16.h>\n",
    "src/ops/norm.h": '#pragma once\n#include "device/device.h"\n#include "base/error.h"\n',
    "src/comm/nccl/group.cpp": "#include <nccl.h>\n",
    "src/comm/gloo/group.cpp": "#include <gloo/allreduce.h>\n",
    "src/spec/run_config.cpp": "#include <yaml-cpp/yaml.h>\n",
    "src/plan/plan.h": '#pragma once\n#include "base/error.h"\n',
    "src/model/model.h": '#pragma once\n#include "plan/plan.h"\n#include "ops/norm.h"\n',
    "src/CMakeLists.txt": "megatoken_module(base fmt::fmt)\nmegatoken_module(ops megatoken_device openblas)\n",
    "tests/ops/norm_test.cpp": '#include "ops/norm.h"\n#include <gtest/gtest.h>\n',
}


class ArrowsTest(unittest.TestCase):
    def errors(self, planted=None, arrows=None):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in {**CLEAN, **(planted or {})}.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            return check_arrows.check(root, arrows)

    def assert_found(self, planted, place, *words):
        errors = self.errors(planted)
        self.assertEqual(len(errors), 1, errors)
        self.assertTrue(errors[0].startswith(place + ": "), errors[0])
        for word in words:
            self.assertIn(word, errors[0])

    def test_clean_tree(self):
        self.assertEqual(self.errors(), [])

    def test_against_an_arrow(self):
        self.assert_found(
            {"src/ops/norm.cpp": '#include "ops/norm.h"\n\n#include "model/model.h"\n'}, "src/ops/norm.cpp:3", "ops", "model"
        )

    def test_device_free_modules(self):
        for module in check_arrows.DEVICE_FREE:
            with self.subTest(module):
                self.assert_found({f"src/{module}/x.h": '#include "device/device.h"\n'}, f"src/{module}/x.h:1", "device")

    def test_every_pair_outside_the_closure(self):
        allowed = check_arrows.closure(check_arrows.ARROWS)
        headers = {f"src/{module}/probe.h": "#pragma once\n" for module in allowed}
        everything = sorted(allowed)
        user = "".join(f'#include "{used}/probe.h"\n' for used in everything)
        for module in allowed:
            errors = self.errors({**headers, f"src/{module}/user.cpp": user})
            forbidden = [used for used in everything if used not in allowed[module]]
            self.assertEqual(len(errors), len(forbidden), errors)
            for used, error in zip(forbidden, errors):
                place = f"src/{module}/user.cpp:{everything.index(used) + 1}: "
                self.assertTrue(error.startswith(f"{place}{module} may not include {used} "), error)

    def test_closure_has_the_expected_arrows(self):
        allowed = check_arrows.closure(check_arrows.ARROWS)
        self.assertEqual(allowed["plan"], {"plan", "schedule", "spec", "base"})
        self.assertEqual(allowed["data"], {"data", "text", "io", "base"})
        self.assertEqual(allowed["report"], {"report", "base"})
        self.assertEqual(allowed["ops"], {"ops", "device", "tensor", "base"})
        self.assertNotIn("model", allowed["optim"])
        self.assertNotIn("data", allowed["model"])
        self.assertEqual(allowed["cli"], set(check_arrows.ARROWS))

    def test_angle_brackets_do_not_hide_an_include(self):
        self.assert_found({"src/io/x.cpp": "#include <device/device.h>\n"}, "src/io/x.cpp:1", "device")

    def test_include_with_spaces_and_a_comment_before_it(self):
        self.assert_found({"src/io/x.cpp": '/* a\n b */ #  include "device/device.h"\n'}, "src/io/x.cpp:2", "device")

    def test_commented_include_is_no_include(self):
        self.assertEqual(self.errors({"src/io/x.cpp": '// #include "device/device.h"\n/*\n#include "ops/norm.h"\n*/\n'}), [])

    def test_path_that_is_not_from_src(self):
        self.assert_found({"src/ops/x.cpp": '#include "norm.h"\n'}, "src/ops/x.cpp:1", "norm.h")
        self.assert_found({"src/ops/x.cpp": '#include "../model/model.h"\n'}, "src/ops/x.cpp:1", "../model/model.h")

    def test_unknown_module(self):
        self.assert_found({"src/helpers/x.h": "#pragma once\n"}, "src/helpers/x.h:1", "no known module")
        self.assert_found({"src/main.cpp": "int main() {}\n"}, "src/main.cpp:1", "no known module")

    def test_cuda_headers(self):
        for header in ("cuda_runtime.h", "cublasLt.h", "cudnn_frontend.h", "nccl.h", "nvtx3/nvToolsExt.h", "cute/tensor.hpp"):
            with self.subTest(header):
                self.assert_found({"src/ops/x.cpp": f"#include <{header}>\n"}, "src/ops/x.cpp:1", "CUDA header", header)
        self.assert_found({"src/device/cpu/x.cpp": "#include <cuda.h>\n"}, "src/device/cpu/x.cpp:1", "CUDA header")
        self.assert_found({"tests/ops/x_test.cpp": "#include <cuda.h>\n"}, "tests/ops/x_test.cpp:1", "CUDA header")
        self.assert_found({"src/ops/cuda_absent/x.cpp": "#include <cuda.h>\n"}, "src/ops/cuda_absent/x.cpp:1", "CUDA header")
        for name in ("tests/ops/x_cuda_test.cpp", "src/ops/cuda/graph.cpp", "src/ops/x_cuda.h", "bench/probe.cpp"):
            self.assertEqual(self.errors({name: "#include <cuda.h>\n"}), [])

    def test_gloo_and_yaml_headers(self):
        self.assert_found({"src/comm/x.cpp": "#include <gloo/context.h>\n"}, "src/comm/x.cpp:1", "Gloo")
        self.assert_found({"src/cli/x.cpp": "#include <yaml-cpp/yaml.h>\n"}, "src/cli/x.cpp:1", "yaml-cpp")

    def test_backend_condition(self):
        self.assert_found({"src/ops/x.cpp": "int a;\n#ifdef MEGATOKEN_CUDA\n#endif\n"}, "src/ops/x.cpp:2", "_absent")

    def test_include_cycle(self):
        self.assert_found(
            {"src/base/a.h": '#include "base/b.h"\n', "src/base/b.h": '#include "base/a.h"\n'},
            "src/base/b.h:1",
            "base/a.h -> base/b.h -> base/a.h",
        )
        self.assert_found({"src/base/a.h": '#include "base/a.h"\n'}, "src/base/a.h:1", "cycle")

    def test_length(self):
        self.assertEqual(self.errors({"src/base/x.cpp": "\n" * 600}), [])
        self.assert_found({"src/base/x.cpp": "\n" * 601}, "src/base/x.cpp:601", "601 lines")
        self.assert_found({"tests/base/x_test.cpp": "\n" * 601}, "tests/base/x_test.cpp:601", "601 lines")

    def test_linking_against_an_arrow(self):
        self.assert_found(
            {"src/CMakeLists.txt": "megatoken_module(base)\nmegatoken_module(plan megatoken_schedule megatoken_model)\n"},
            "src/CMakeLists.txt:2",
            "plan may not link model",
        )

    def test_table_itself(self):
        with self.assertRaisesRegex(ValueError, "cycle"):
            check_arrows.closure({"a": ["b"], "b": ["a"]})
        arrows = {**check_arrows.ARROWS, "plan": ["schedule", "device"]}
        self.assertTrue(any("'plan' see 'device'" in error for error in self.errors(arrows=arrows)))


if __name__ == "__main__":
    unittest.main()
