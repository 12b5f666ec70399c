// What cuDNN's attention does with the trainer's own calls on one GPU: right answers beyond 2^31 elements, speed,
// workspace, output types, build time, short and cut lengths, determinism. docs/cudnn.md says what it found.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <sstream>

#include "attention_probe_rig.h"
#include "attention_probe_sections.h"

int main(int argc, char** argv) {
  using namespace megatoken::probe;
  CLI::App app("cuDNN attention at a million keys");
  std::string device_file;
  std::string out_file;
  std::vector<std::string> only;
  double seconds = 1e9;
  int threads = 8;
  app.add_option("--device_properties", device_file,
                 "JSON description of a GPU (--out holds one): graphs are built for it, nothing runs");
  app.add_option("--out", out_file, "One JSON object a line");
  app.add_option("--only", only, "Sections to run")->delimiter(',');
  app.add_option("--seconds", seconds, "Start no shape after so many seconds");
  app.add_option("--threads", threads, "Threads that build graphs ahead (0: none)");
  CLI11_PARSE(app, argc, argv);
  try {
    std::string description;
    if (!device_file.empty()) {
      std::ifstream in(device_file);
      if (!in) throw std::runtime_error(device_file + ": cannot be read");
      std::stringstream text;
      text << in.rdbuf();
      description = text.str();
    }
    const Library library(description);
    Rig rig(library, out_file, seconds);
    std::vector<const Section*> chosen;
    for (const Section& s : sections()) {
      const bool named = std::find(only.begin(), only.end(), s.name) != only.end();
      if (only.empty() ? s.by_default : named) {
        if (library.has_device() || !s.needs_device) chosen.push_back(&s);
      }
    }
    auto run = [&](bool cold) {
      for (const Section* s : chosen) {
        if (s->cold != cold) continue;
        rig.say("section", s->name);
        try {
          s->run(rig);
        } catch (const std::exception& e) {
          rig.say(s->name, std::string("failed: ") + e.what());
        }
      }
    };
    run(true);
    if (library.has_device() && threads > 0) {
      rig.collect(true);
      for (const Section* s : chosen) s->run(rig);
      rig.collect(false);
      rig.build_collected(threads);
    }
    run(false);
    rig.say("section", "end");
  } catch (const std::exception& e) {
    std::fprintf(stderr, "attention_probe: %s\n", e.what());
    return 1;
  }
  return 0;
}
