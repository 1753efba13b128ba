// Turns a kernel's access outside of any allocation into an error of the launch instead of the end of the process.
#pragma once

namespace emu {
/** From here to faults_restore, a fault of the calling thread inside a kernel ends the launch. */
void faults_catch();
void faults_restore();
}  // namespace emu
