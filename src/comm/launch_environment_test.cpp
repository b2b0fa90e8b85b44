// Which rank this is, by the environment of each launcher.
#include "comm/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "base/error.h"

namespace sauropod::comm {
namespace {

using Environment = std::map<std::string, std::string, std::less<>>;

LaunchEnvironment read(const Environment& environment) {
  return read_launch_environment([&](std::string_view name) -> std::optional<std::string> {
    const auto at = environment.find(name);
    return at == environment.end() ? std::nullopt : std::optional(at->second);
  });
}

std::string error_of(const Environment& environment) {
  try {
    read(environment);
  } catch (const base::Error& error) {
    EXPECT_EQ(error.exit_code(), base::Exit::usage);
    return error.what();
  }
  return "no error";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

const Environment kOwn = {{"SAUROPOD_RANK", "5"},       {"SAUROPOD_WORLD_SIZE", "8"}, {"SAUROPOD_LOCAL_RANK", "1"},
                          {"SAUROPOD_LOCAL_SIZE", "4"}, {"SAUROPOD_HOST", "b"},       {"SAUROPOD_STORE", "10.0.0.1:4567"},
                          {"SAUROPOD_ATTEMPT", "2"},    {"SAUROPOD_FLIGHT_RECORDER", "/run/5.flight"}};
const Environment kTorchrun = {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "head"}, {"MASTER_PORT", "1234"}};
const Environment kSlurm = {{"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "4"}, {"SLURM_LOCALID", "0"},
                            {"SLURM_STEP_NODELIST", "n[2-3]"}, {"SLURM_NODELIST", "n[1-3]"},
                            {"SLURM_JOB_ID", "77"}, {"SLURM_STEP_ID", "0"}, {"SLURMD_NODENAME", "n3"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                              {"PMIX_NAMESPACE", "123"}};

Environment with(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}
Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

TEST(Launch, NothingSetIsOneRank) {
  const auto at = read({});
  EXPECT_EQ(at.source, "none");
  EXPECT_EQ(at.rank, 0);
  EXPECT_EQ(at.size, 1);
  EXPECT_EQ(at.local_size, 1);
  EXPECT_FALSE(at.host.empty());
}

TEST(Launch, OwnLauncher) {
  const auto at = read(kOwn);
  EXPECT_EQ(at.source, "sauropod launch");
  EXPECT_EQ(at.rank, 5);
  EXPECT_EQ(at.size, 8);
  EXPECT_EQ(at.local_rank, 1);
  EXPECT_EQ(at.local_size, 4);
  EXPECT_EQ(at.host, "b");
  EXPECT_EQ(at.store_host, "10.0.0.1");
  EXPECT_EQ(at.store_port, 4567);
  EXPECT_TRUE(at.store_hosted);
  EXPECT_EQ(at.attempt, 2);
  EXPECT_EQ(at.recorder_path, "/run/5.flight");
}

TEST(Launch, Torchrun) {
  const auto at = read(kTorchrun);
  EXPECT_EQ(at.source, "torchrun");
  EXPECT_EQ(at.rank, 3);
  EXPECT_EQ(at.store_host, "head");
  EXPECT_EQ(at.store_port, 1234);
  EXPECT_FALSE(at.store_hosted);
  EXPECT_TRUE(read(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).store_hosted);
  EXPECT_EQ(read(without(kTorchrun, "MASTER_PORT")).store_port, 29500);
  EXPECT_EQ(read(without(without(kTorchrun, "LOCAL_RANK"), "LOCAL_WORLD_SIZE")).local_rank, -1);
}

TEST(Launch, Slurm) {
  const auto at = read(kSlurm);
  EXPECT_EQ(at.source, "Slurm");
  EXPECT_EQ(at.rank, 2);
  EXPECT_EQ(at.size, 4);
  EXPECT_EQ(at.local_rank, 0);
  EXPECT_EQ(at.local_size, -1);
  EXPECT_EQ(at.host, "n3");
  EXPECT_EQ(at.store_host, "n2");
  EXPECT_EQ(read(kSlurm).store_port, at.store_port);
  EXPECT_NE(read(with(kSlurm, {{"SLURM_STEP_ID", "1"}})).store_port, at.store_port);
  EXPECT_EQ(read(without(kSlurm, "SLURM_STEP_NODELIST")).store_host, "n1");
  EXPECT_EQ(read(with(kSlurm, {{"MASTER_ADDR", "x"}, {"MASTER_PORT", "99"}})).store_host, "x");
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_STEP_NUM_TASKS", "3"}})).size, 3);
}

TEST(Launch, AllocationsShellAndBatchScriptAreOneRank) {
  EXPECT_EQ(read(without(kSlurm, "SLURM_STEP_ID")).size, 1);
  EXPECT_EQ(read(with(kSlurm, {{"SLURM_STEP_ID", "4294967290"}})).size, 1);
}

TEST(Launch, OpenMpi) {
  const auto at = read(kOpenMpi);
  EXPECT_EQ(at.source, "OpenMPI");
  EXPECT_EQ(at.rank, 1);
  EXPECT_EQ(at.store_host, "127.0.0.1");
  EXPECT_GE(at.store_port, 1024);
  EXPECT_NE(read(with(kOpenMpi, {{"PMIX_NAMESPACE", "124"}})).store_port, at.store_port);
  const auto spread = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  EXPECT_CONTAINS(error_of(spread), "MASTER_ADDR");
  EXPECT_EQ(read(with(spread, {{"MASTER_ADDR", "head"}})).store_host, "head");
}

TEST(Launch, Precedence) {
  Environment all = kSlurm;
  EXPECT_EQ(read(all = with(all, kOpenMpi)).source, "OpenMPI");
  EXPECT_EQ(read(all = with(all, kTorchrun)).source, "torchrun");
  EXPECT_EQ(read(all = with(all, kOwn)).source, "sauropod launch");
}

TEST(Launch, MissingAndContradictoryVariablesAreNamed) {
  EXPECT_CONTAINS(error_of(without(kOwn, "SAUROPOD_WORLD_SIZE")), "SAUROPOD_WORLD_SIZE is not set");
  EXPECT_CONTAINS(error_of(without(kOwn, "SAUROPOD_STORE")), "SAUROPOD_STORE is not set");
  EXPECT_CONTAINS(error_of(with(kOwn, {{"SAUROPOD_STORE", "4567"}})), "host:port");
  EXPECT_CONTAINS(error_of(without(kTorchrun, "RANK")), "RANK is not set");
  EXPECT_CONTAINS(error_of(without(kTorchrun, "MASTER_ADDR")), "MASTER_ADDR is not set");
  EXPECT_CONTAINS(error_of(with(kTorchrun, {{"RANK", "4"}})), "RANK=4 and WORLD_SIZE=4 contradict");
  EXPECT_CONTAINS(error_of(with(kTorchrun, {{"RANK", "two"}})), "RANK=two: it must be a whole number");
  EXPECT_CONTAINS(error_of(with(kTorchrun, {{"LOCAL_RANK", "2"}})), "LOCAL_RANK=2 and LOCAL_WORLD_SIZE=2");
  EXPECT_CONTAINS(error_of(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}})), "LOCAL_WORLD_SIZE=5 and WORLD_SIZE=4");
  EXPECT_CONTAINS(error_of(with(kTorchrun, {{"MASTER_PORT", "70000"}})), "MASTER_PORT=70000");
  EXPECT_CONTAINS(error_of(without(kSlurm, "SLURM_NTASKS")), "SLURM_NTASKS is not set");
  EXPECT_CONTAINS(error_of(with(kSlurm, {{"SLURM_STEP_NODELIST", "n[3-"}})), "can't be read");
}

TEST(SlurmHosts, Expand) {
  using List = std::vector<std::string>;
  EXPECT_EQ(expand_slurm_hosts("login"), (List{"login"}));
  EXPECT_EQ(expand_slurm_hosts("a,b"), (List{"a", "b"}));
  EXPECT_EQ(expand_slurm_hosts("n[1-3,7],x"), (List{"n1", "n2", "n3", "n7", "x"}));
  EXPECT_EQ(expand_slurm_hosts("n[08-10]"), (List{"n08", "n09", "n10"}));
  EXPECT_EQ(expand_slurm_hosts("r[1-2]n[5,6].cluster"), (List{"r1n5.cluster", "r1n6.cluster", "r2n5.cluster", "r2n6.cluster"}));
  EXPECT_EQ(expand_slurm_hosts("n[098-101]").back(), "n101");
  for (const char* wrong : {"", "a,", ",a", "n[", "n[]", "n[1", "n[1-]", "n[3-1]", "n]", "n[1,]", "n[a]", "n[1-999999999]"})
    EXPECT_THROW(expand_slurm_hosts(wrong), base::Error) << wrong;
}

}  // namespace
}  // namespace sauropod::comm
