#include "report.h"

#include <map>

namespace emu {

static std::string ranges(const std::vector<int>& threads) {
  std::string text;
  for (size_t i = 0; i < threads.size();) {
    size_t end = i + 1;
    while (end < threads.size() && threads[end] == threads[end - 1] + 1) end++;
    if (text.size() > 60) return text + ",...";
    text += (text.empty() ? "" : ",") + std::to_string(threads[i]);
    if (end > i + 1) text += "-" + std::to_string(threads[end - 1]);
    i = end;
  }
  return text;
}

std::string describe_threads(const Block& block) {
  std::map<std::string, std::vector<int>> groups;
  for (const CudaThread* t : block.threads) {
    std::string at = std::string(t->what) + " at " + t->site.file + ":" + std::to_string(t->site.line);
    std::string where = t->state == State::exited  ? "have exited"
                        : t->state == State::ready ? "can run, last seen in " + at
                                                   : "wait in " + at;
    groups[where].push_back(t->index);
  }
  std::string text;
  for (auto& [where, threads] : groups) {
    text += "\n  " + std::to_string(threads.size()) + " threads " + where + " (" + ranges(threads) + ")";
  }
  return text;
}

}  // namespace emu
