#include "spec/launch.h"

#include <charconv>
#include <cstdint>
#include <cstdlib>

#include "base/error.h"

namespace megatoken {
namespace {

constexpr int64 kMostRanks = int64{1} << 20;
constexpr int64 kLastPort = 65535;
// Ports to try where none is prescribed.
constexpr int64 kPorts = 8;

int64 number(const std::string& name, const std::string& text, int64 least, int64 most) {
  int64 value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
    throw ConfigError("{}: \"{}\" is no whole number from {} to {}", name, text, least, most);
  return value;
}

// The names of what one kind of launcher says.
struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* local_size;
};
constexpr Variables kExplicit{"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Variables kOpenMpi{"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
                             "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Variables kSlurm{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr};
constexpr Variables kPmi{"PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

class Finder {
 public:
  Finder(const ParallelOptions& parallel, const Environment& environment)
      : parallel_(parallel), environment_(environment) {}

  Launch find() {
    if (const auto seconds = environment_("MEGATOKEN_JOIN_SECONDS"))
      launch_.join_seconds = number("MEGATOKEN_JOIN_SECONDS", *seconds, 1, 86400);
    if (has("RANK") || has("WORLD_SIZE")) {
      take(kExplicit);
      if (given() && *given() != launch_.size)
        throw ConfigError("num_processes {} contradicts WORLD_SIZE {}", *given(), launch_.size);
      launch_.job = joined({"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "SLURM_JOB_ID"});
      return complete();
    }
    for (const Variables& variables : {kOpenMpi, kSlurm, kPmi}) {
      if (!has(variables.rank) || !has(variables.size)) continue;
      // A shell of Slurm's own, in which no step runs, knows the whole allocation's tasks.
      if (variables.launcher == kSlurm.launcher && !has("SLURM_STEP_ID")) continue;
      take(variables);
      launch_.job = joined({"PMIX_NAMESPACE", "SLURM_JOB_ID", "SLURM_STEP_ID", "PMI_PORT"});
      if (variables.launcher == kSlurm.launcher) {
        launch_.one_host = environment_("SLURM_STEP_NUM_NODES") == "1";
        launch_.master = first_host(environment_("SLURM_STEP_NODELIST").value_or(""));
      }
      if (launch_.size == 1) break;  // started as any other program
      share_out(variables);
      return complete();
    }
    if (has("PMIX_RANK") && !has("OMPI_COMM_WORLD_SIZE") && !has("SLURM_STEP_NUM_TASKS") && !has("PMI_SIZE"))
      throw ConfigError(
          "PMIX_RANK is set, and how many ranks there are is not: set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT");
    return by_keys();
  }

 private:
  bool has(const std::string& name) const { return environment_(name).has_value(); }
  const std::optional<int64>& given() const { return parallel_.num_processes; }

  std::string joined(const std::vector<std::string>& names) const {
    std::string text;
    for (const std::string& name : names)
      if (const auto value = environment_(name)) text += (text.empty() ? "" : "/") + *value;
    return text;
  }

  int64 required(const char* name, const char* because, int64 least, int64 most) const {
    const auto value = environment_(name);
    if (!value) throw ConfigError("{} is not set, though {} is", name, because);
    return number(name, *value, least, most);
  }

  void take(const Variables& names) {
    launch_.launcher = names.launcher;
    launch_.size = required(names.size, names.rank, 1, kMostRanks);
    launch_.first_rank = required(names.rank, names.size, 0, kMostRanks);
    if (launch_.first_rank >= launch_.size)
      throw ConfigError("{} {} is no rank of {} {}", names.rank, launch_.first_rank, names.size, launch_.size);
    std::optional<int64> local_size, local_rank;
    if (names.local_size != nullptr && has(names.local_size))
      local_size = number(names.local_size, *environment_(names.local_size), 1, kMostRanks);
    if (has(names.local_rank)) local_rank = number(names.local_rank, *environment_(names.local_rank), 0, kMostRanks);
    if (local_size && *local_size > launch_.size)
      throw ConfigError("{} {} contradicts {} {}", names.local_size, *local_size, names.size, launch_.size);
    if (local_size && local_rank && *local_rank >= *local_size)
      throw ConfigError("{} {} is no rank of {} {}", names.local_rank, *local_rank, names.local_size, *local_size);
    launch_.one_host = local_size == launch_.size;
  }

  // num_processes beside a launcher of one process a rank, or of one process a machine.
  void share_out(const Variables& names) {
    if (!given() || *given() == launch_.size) return;
    if (parallel_.num_machines != launch_.size || *given() % launch_.size != 0)
      throw ConfigError(
          "num_processes {} contradicts {} {} (one process a rank; or one a machine, with num_machines {})", *given(),
          names.size, launch_.size, launch_.size);
    launch_.ranks_here = *given() / launch_.size;
    launch_.first_rank *= launch_.ranks_here;
    launch_.size = *given();
  }

  // Finds rank 0's host and port.
  Launch complete() {
    if (launch_.alone()) return launch_;
    if (const auto master = environment_("MASTER_ADDR"))
      launch_.master = *master;
    else if (!parallel_.main_process_ip.empty())
      launch_.master = parallel_.main_process_ip;
    else if (launch_.master.empty() && launch_.launcher != kExplicit.launcher && launch_.one_host)
      launch_.master = "127.0.0.1";
    if (launch_.master.empty())
      throw ConfigError(
          "MASTER_ADDR is not set, with {} ranks by {} (it names rank 0's host; main_process_ip does too)",
          launch_.size, launch_.launcher);
    std::optional<int64> port;
    if (const auto text = environment_("MASTER_PORT"))
      port = number("MASTER_PORT", *text, 1, kLastPort);
    else if (parallel_.main_process_port)
      port = parallel_.main_process_port;
    if (port && environment_("TORCHELASTIC_USE_AGENT_STORE") == "True")
      add_ports(*port + 1);  // the agent itself listens at MASTER_PORT
    else if (port)
      launch_.ports = {*port};
    else if (launch_.launcher == kExplicit.launcher || launch_.job.empty())
      throw ConfigError("MASTER_PORT is not set, with {} ranks by {} (a free port of {}; main_process_port does too)",
                        launch_.size, launch_.launcher, launch_.master);
    else
      add_ports(20000 + static_cast<int64>(hash(launch_.job) % 10000));  // below the ports that systems hand out
    return launch_;
  }

  void add_ports(int64 first) {
    for (int64 port = first; port < first + kPorts; ++port)
      launch_.ports.push_back(port <= kLastPort ? port : port - kLastPort + 1023);
  }

  static std::uint64_t hash(const std::string& text) {  // FNV-1a
    std::uint64_t value = 14695981039346656037ULL;
    for (const char c : text) value = (value ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
    return value;
  }

  Launch by_keys() {
    launch_ = Launch{.join_seconds = launch_.join_seconds};
    launch_.size = given().value_or(1);
    const int64 machines = parallel_.num_machines;
    if (machines == 1) {
      if (parallel_.machine_rank.value_or(0) != 0)
        throw ConfigError("machine_rank {} of num_machines 1", *parallel_.machine_rank);
      launch_.ranks_here = launch_.size;
      return launch_;
    }
    launch_.launcher = "num_machines";
    if (!given())
      throw ConfigError("num_processes: not given, though num_machines is {} (it counts the ranks of all machines)",
                        machines);
    if (launch_.size % machines != 0)
      throw ConfigError("num_processes {} can't be shared out evenly among num_machines {}", launch_.size, machines);
    if (!parallel_.machine_rank) throw ConfigError("machine_rank: not given, though num_machines is {}", machines);
    if (*parallel_.machine_rank >= machines)
      throw ConfigError("machine_rank {} is none of num_machines {}", *parallel_.machine_rank, machines);
    if (parallel_.main_process_ip.empty())
      throw ConfigError("main_process_ip: not given, though num_machines is {} (it names machine 0)", machines);
    if (!parallel_.main_process_port)
      throw ConfigError("main_process_port: not given, though num_machines is {} (a free port of machine 0)", machines);
    launch_.ranks_here = launch_.size / machines;
    launch_.first_rank = *parallel_.machine_rank * launch_.ranks_here;
    launch_.master = parallel_.main_process_ip;
    launch_.ports = {*parallel_.main_process_port};
    return launch_;
  }

  const ParallelOptions& parallel_;
  const Environment& environment_;
  Launch launch_;
};

}  // namespace

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* const value = std::getenv(name.c_str());
    if (value == nullptr || *value == '\0') return std::nullopt;
    return value;
  };
}

Launch find_launch(const ParallelOptions& parallel, const Environment& environment) {
  return Finder(parallel, environment).find();
}

std::string first_host(const std::string& node_list) {
  std::string host;
  for (std::size_t i = 0; i < node_list.size() && node_list[i] != ','; ++i) {
    if (node_list[i] != '[') {
      host += node_list[i];
      continue;
    }
    const std::size_t close = node_list.find(']', i);
    if (close == std::string::npos) return "";
    const std::string list = node_list.substr(i + 1, close - i - 1);
    host += list.substr(0, list.find_first_of("-,"));
    i = close;
  }
  return host;
}

}  // namespace megatoken
