// harness [-s forward|reverse|random|all] [-c lazy|eager|all] [-n seed] [-q] [-r folder] [prefix of a case's name]...
// Runs the cases, by default all of them under all schedules with lazy copies, and forward with eager ones too; with
// -r launches recorded in a folder instead, see record.h. Cases that start with bug_ must fail and run only when asked for.
#include "harness.h"

#include <chrono>
#include <cmath>

namespace harness {

static void* module;

std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}

void check(int code, const std::string& what) {
  if (code == 0) return;
  const char* text = nullptr;
  cuGetErrorString(code, &text);
  throw std::runtime_error(what + ": error " + std::to_string(code) + ", " + (text ? text : "unknown"));
}

void launch_async(void* stream, const char* kernel, dim3 grid, dim3 block, unsigned shared, void** parameters,
                  bool cooperative) {
  void* f;
  check(cuModuleGetFunction(&f, module, kernel), kernel);
  if (shared > 48 * 1024) check(cuFuncSetAttribute(f, 8, shared), kernel);
  int code = cooperative ? cuLaunchCooperativeKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
                                                     stream, parameters)
                         : cuLaunchKernel(f, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, stream,
                                          parameters, nullptr);
  check(code, kernel);
}

void launch_with(const char* kernel, dim3 grid, dim3 block, unsigned shared, void** parameters, bool cooperative) {
  launch_async(nullptr, kernel, grid, block, shared, parameters, cooperative);
  check(cuCtxSynchronize(), kernel);
}

void expect_near(const char* what, const std::vector<float>& actual, const std::vector<double>& expected,
                 double tolerance) {
  if (actual.size() != expected.size()) throw std::runtime_error(std::string(what) + ": sizes differ");
  for (size_t i = 0; i < actual.size(); i++) {
    double allowed = tolerance * std::fmax(1.0, std::fabs(expected[i]));
    if (std::fabs(actual[i] - expected[i]) <= allowed) continue;  // false for NaN
    throw std::runtime_error(std::string(what) + "[" + std::to_string(i) + "] is " + std::to_string(actual[i]) +
                             ", expected " + std::to_string(expected[i]));
  }
}

void expect_failure(const std::function<void()>& action, const std::vector<std::string>& parts) {
  std::string message;
  try {
    action();
  } catch (const std::exception& e) {
    message = e.what();
  }
  emu_clear_error();
  if (message.empty()) throw std::runtime_error("expected a failure with: " + parts[0]);
  for (const std::string& part : parts) {
    if (message.find(part) == std::string::npos) {
      throw std::runtime_error("expected a failure with: " + part + "\n    but it was: " + message);
    }
  }
}

void expect_equal(const char* what, long long actual, long long expected) {
  if (actual == expected) return;
  throw std::runtime_error(std::string(what) + " is " + std::to_string(actual) + ", expected " +
                           std::to_string(expected));
}

}  // namespace harness

using namespace harness;

struct Settings {
  int schedules = 7, copies = 0, seed = 1;  // bits 1 forward, 2 reverse, 4 random; 1 lazy, 2 eager, 0 both as above
  bool quiet = false;
  std::string records;
  std::vector<std::string> prefixes;
};

static Settings parse(int count, char** words) {
  Settings s;
  for (int i = 1; i < count; i++) {
    std::string word = words[i], value = i + 1 < count ? words[i + 1] : "";
    if (word == "-q") {
      s.quiet = true;
    } else if (word == "-s") {
      s.schedules = value == "forward" ? 1 : value == "reverse" ? 2 : value == "random" ? 4 : 7;
      i++;
    } else if (word == "-c") {
      s.copies = value == "lazy" ? 1 : value == "eager" ? 2 : 3;
      i++;
    } else if (word == "-n") {
      s.seed = std::stoi(value);
      i++;
    } else if (word == "-r") {
      s.records = value;
      i++;
    } else {
      s.prefixes.push_back(word);
    }
  }
  return s;
}

static bool chosen(const Settings& s, const std::string& name) {
  for (const std::string& prefix : s.prefixes) {
    if (name.compare(0, prefix.size(), prefix) == 0) return true;
  }
  return s.prefixes.empty() && name.compare(0, 4, "bug_") != 0;
}

static int races;
#ifdef EMU_TSAN
extern "C" __attribute__((visibility("default"))) void __tsan_on_report(void*) { races++; }
/**
 * A second race at an address that had one before counts too: shared memory is at the same address in every case.
 * There are no other threads, for whose races TSan would wait a second at the end.
 */
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options() {
  return "suppress_equal_addresses=0:atexit_sleep_ms=0";
}
#endif
#ifdef EMU_ASAN
/** The thread of a failed launch is dropped with all it holds; allocations on the device are counted by the harness. */
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

/** Runs one case under one schedule; whether it went well. */
static bool run(const Settings& s, const Case& c, int schedule, bool eager) {
  static const char* names[] = {"forward", "reverse", "random"};
  auto start = std::chrono::steady_clock::now();
  std::string problem;
  int before = emu_live_allocations(), races_before = races;
  emu_options(schedule, s.seed, eager);
  Random random(s.seed);
  try {
    c.run(random);
  } catch (const std::exception& e) {
    problem = e.what();
    emu_clear_error();
  }
  if (problem.empty() && emu_live_allocations() != before) problem = "allocations are left";
  if (problem.empty() && races > races_before) problem = "ThreadSanitizer reports a race";
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!problem.empty() || !s.quiet) {
    printf("%-4s %s, %s, %s, seed %d, %.3f s %s\n", problem.empty() ? "ok" : "FAIL", c.name.c_str(), names[schedule],
           eager ? "eager" : "lazy", s.seed, seconds, problem.c_str());
    fflush(stdout);
  }
  return problem.empty();
}

int main(int count, char** words) {
  Settings s = parse(count, words);
  void* context;
  check(cuInit(0), "cuInit");
  check(cuCtxCreate_v2(&context, 0, 0), "cuCtxCreate");
  check(cuModuleLoadData(&module, "// emulated"), "cuModuleLoadData");
  if (!s.records.empty()) cases() = replays(s.records);
  int ran = 0, failed = 0;
  for (const Case& c : cases()) {
    if (!chosen(s, c.name)) continue;
    for (int schedule = 0; schedule < 3; schedule++) {
      for (int eager = 0; eager < 2; eager++) {
        bool copies = s.copies ? s.copies >> eager & 1 : !eager || schedule == 0;
        if (!(s.schedules >> schedule & 1) || !copies) continue;
        ran++;
        failed += !run(s, c, schedule, eager);
      }
    }
  }
  emu_forget_errors();  // cases check for themselves
  printf("%d runs, %d failed\n", ran, failed);
  return failed || !ran ? 1 : 0;
}
