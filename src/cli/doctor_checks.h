// What doctor looks at, each part as lines of findings.
#pragma once

#include <string>
#include <vector>

namespace megatoken {

enum class Verdict { ok, note, missing, wrong };  // wrong: results can't be trusted

struct Finding {
  Verdict verdict;
  std::string what;
  std::string advice;  // what to do about it; empty when nothing is to be done
};

std::vector<Finding> check_processor();  // instruction set, cores, memory and its limit
std::vector<Finding> check_products();   // the CPU's matrix products against a plain loop in double precision
std::vector<Finding> check_limits();     // locked memory, open files, stack, shared memory, huge pages
std::vector<Finding> check_gpus();       // driver, devices, libraries opened at run time

}  // namespace megatoken
