// Launches as they were, so that the sanitizers see every kernel with valid arguments: where EMU_RECORD names a
// folder, the driver keeps one launch of each kernel there, and `harness -r` runs them again.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "scheduler.h"

namespace emu {

struct Record {
  typedef std::vector<unsigned char> Bytes;
  struct Memory {  // an allocation that parameters point into
    uint64_t address;
    Bytes before, after;
  };
  dim3 grid, block;
  unsigned shared_bytes = 0;
  bool cooperative = false;
  double milliseconds = 0;
  std::vector<Bytes> parameters;
  std::vector<Memory> memory;

  /** False if the file cannot be written, or read. */
  bool save(const std::string& path);
  bool load(const std::string& path, bool with_memory = true);
};

/** Made before a launch; keep() after it has gone well. Does nothing where EMU_RECORD is not set. */
class Recorder {
 public:
  Recorder(const Launch& launch, const std::vector<int>& parameter_sizes);
  void keep();

 private:
  std::string path;  // empty: nothing is recorded
  Record record;
};

}  // namespace emu
