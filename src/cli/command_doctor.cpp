#include "base/error.h"
#include "base/log.h"
#include "cli/cli.h"
#include "cli/doctor_checks.h"
#include "device/device.h"
#include "spec/machine.h"
#include "train/machine_rates.h"

namespace megatoken {
namespace {

std::string_view mark(Verdict verdict) {
  switch (verdict) {
    case Verdict::ok:
      return "ok";
    case Verdict::note:
      return "note";
    case Verdict::missing:
      return "missing";
    case Verdict::wrong:
      return "wrong";
  }
  return "";
}

}  // namespace

// Exit 0 with whatever is only missing; exit 5 when results could not be trusted.
int run_doctor(const Invocation& invocation) {
  bool trusted = true;
  for (const auto& part : {check_processor(), check_products(), check_limits(), check_gpus()})
    for (const Finding& finding : part) {
      log_info("{:<8} {}", mark(finding.verdict), finding.what);
      if (!finding.advice.empty()) log_info("{:<8} -> {}", "", finding.advice);
      trusted &= finding.verdict != Verdict::wrong;
    }
  if (invocation.measure)
    for (const bool on_cuda : {false, true}) {
      if (on_cuda && cuda_device_count() == 0) continue;
      for (const std::string& line : describe(measure_rates(on_cuda, detect_machine().cores)))
        log_info("{:<8} {} {}", "measured", on_cuda ? "GPU" : "CPU", line);
      log_info("{:<8} kept in {}", "measured", rates_file(on_cuda));
    }
  if (!trusted) throw TrainError("doctor: results can't be trusted on this machine; see the line marked wrong");
  return 0;
}

}  // namespace megatoken
