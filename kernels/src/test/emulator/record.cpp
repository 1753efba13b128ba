#include "record.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "device_memory.h"

namespace emu {

namespace {

// The sanitizers take some ten times as long, under several schedules, for each of about 200 kernels.
const double BUDGET_MILLISECONDS = 8;

/** Writes or reads: the same fields in the same order. */
struct Archive {
  FILE* file;
  bool writing, with_memory, good;

  void bytes(void* at, size_t n) { good = good && (writing ? fwrite(at, 1, n, file) : fread(at, 1, n, file)) == n; }
  template <class T>
  void value(T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    bytes(&v, sizeof v);
  }
  template <class T>
  void count(std::vector<T>& v) {
    size_t n = v.size();
    value(n);
    if (good) v.resize(n);
  }
  void value(Record::Bytes& v) {
    count(v);
    bytes(v.data(), v.size());
  }
  void value(Record& r) {
    value(r.grid);
    value(r.block);
    value(r.shared_bytes);
    value(r.cooperative);
    value(r.milliseconds);
    if (!with_memory) return;
    count(r.parameters);
    for (Record::Bytes& p : r.parameters) value(p);
    count(r.memory);
    for (Record::Memory& m : r.memory) {
      value(m.address);
      value(m.before);
      value(m.after);
    }
  }
};

bool transfer(const std::string& path, bool writing, bool with_memory, Record& record) {
  Archive archive{fopen(path.c_str(), writing ? "wb" : "rb"), writing, with_memory, true};
  if (!archive.file) return false;
  archive.value(record);
  return fclose(archive.file) == 0 && archive.good;
}

double now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool in_budget(const Record& r) { return r.milliseconds <= BUDGET_MILLISECONDS; }
bool several_blocks(const Record& r) { return r.grid.x * r.grid.y * r.grid.z > 1; }

/** Whether a says more of a kernel than b: the longest within the budget, or else the shortest. */
bool better(const Record& a, const Record& b) {
  if (in_budget(a) != in_budget(b)) return in_budget(a);
  if (several_blocks(a) != several_blocks(b)) return several_blocks(a);
  return in_budget(a) ? a.milliseconds > b.milliseconds : a.milliseconds < b.milliseconds;
}

Record::Bytes content(uint64_t address, size_t bytes) {
  const unsigned char* from = reinterpret_cast<const unsigned char*>(address);
  return Record::Bytes(from, from + bytes);
}

}  // namespace

bool Record::save(const std::string& path) {
  // another JVM may write at the same time
  std::string written = path + "." + std::to_string(getpid());
  return transfer(written, true, true, *this) && rename(written.c_str(), path.c_str()) == 0;
}

bool Record::load(const std::string& path, bool with_memory) { return transfer(path, false, with_memory, *this); }

Recorder::Recorder(const Launch& launch, const std::vector<int>& parameter_sizes) {
  const char* folder = getenv("EMU_RECORD");
  if (!folder || !*folder) return;
  path = std::string(folder) + "/" + launch.kernel;
  record.grid = launch.grid;
  record.block = launch.block;
  record.shared_bytes = launch.shared_bytes;
  record.cooperative = launch.cooperative;
  for (size_t i = 0; i < parameter_sizes.size(); i++) {
    const unsigned char* value = static_cast<const unsigned char*>(launch.parameters[i]);
    record.parameters.emplace_back(value, value + parameter_sizes[i]);
    uint64_t address, start;
    size_t bytes;
    if (parameter_sizes[i] != sizeof address) continue;
    memcpy(&address, value, sizeof address);
    if (!device_memory_range(address, &start, &bytes)) continue;
    bool known = false;
    for (const Record::Memory& m : record.memory) known = known || m.address == start;
    if (!known) record.memory.push_back({start, content(start, bytes), {}});
  }
  record.milliseconds = -now();
}

void Recorder::keep() {
  if (path.empty()) return;
  record.milliseconds += now();
  Record kept;
  if (kept.load(path, false) && !better(record, kept)) return;
  for (Record::Memory& m : record.memory) m.after = content(m.address, m.before.size());
  if (!record.save(path)) {
    perror(("emulator: cannot record a launch in " + path).c_str());
    abort();
  }
}

}  // namespace emu
