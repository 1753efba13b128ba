// Launches that the JUnit tests made, once more under the sanitizers. Those tests judge the results; here a launch
// must do the same again to the last bit, whatever the schedule and however far the compiler has optimised.
#include <memory>

#include "harness.h"
#include "record.h"

using namespace harness;

namespace {

void compare(const Buffer<unsigned char>& buffer, const emu::Record::Bytes& expected, size_t number) {
  emu::Record::Bytes actual = buffer.download();
  for (size_t i = 0; i < actual.size(); i++) {
    if (actual[i] == expected[i]) continue;
    throw std::runtime_error("byte " + std::to_string(i) + " of " + std::to_string(actual.size()) + " in allocation " +
                             std::to_string(number) + " is not what it was");
  }
}

void replay(const std::string& kernel, emu::Record r) {
  std::vector<std::unique_ptr<Buffer<unsigned char>>> buffers;
  for (const auto& m : r.memory) buffers.push_back(std::make_unique<Buffer<unsigned char>>(m.before));
  std::vector<void*> parameters;
  for (auto& p : r.parameters) {
    parameters.push_back(p.data());
    CUdeviceptr value;
    if (p.size() != sizeof value) continue;
    memcpy(&value, p.data(), sizeof value);
    for (size_t i = 0; i < buffers.size(); i++) {
      if (value - r.memory[i].address >= buffers[i]->n) continue;
      CUdeviceptr moved = buffers[i]->address + (value - r.memory[i].address);
      memcpy(p.data(), &moved, sizeof moved);
      break;
    }
  }
  parameters.push_back(nullptr);  // where the list ends
  launch_with(kernel.c_str(), r.grid, r.block, r.shared_bytes, parameters.data(), r.cooperative);
  for (size_t i = 0; i < buffers.size(); i++) compare(*buffers[i], r.memory[i].after, i);
}

}  // namespace

std::vector<Case> harness::replays(const std::string& folder) {
  std::vector<Case> all;
  std::string missing;
  const char* name;
  for (int i = 0; (name = emu_kernel_name(i)); i++) {
    const std::string kernel = name;
    if (kernel.compare(0, 8, "planted_") == 0) continue;
    emu::Record record;
    if (record.load(folder + "/" + kernel)) {
      all.push_back({kernel, [=](Random&) { replay(kernel, record); }});
    } else {
      missing += (missing.empty() ? "" : ", ") + kernel;
    }
  }
  if (!missing.empty()) {
    all.push_back({"all_kernels", [=](Random&) { throw std::runtime_error("no test has launched " + missing); }});
  }
  return all;
}
