// Ctrl-C leaves no half-written files: the temporary files in use are known here, and a signal that
// ends the program removes them first. What already has its final name is complete and stays.
#pragma once

#include <string>

namespace sauropod::base {

// Installs handlers for SIGINT, SIGTERM and SIGHUP that remove the registered files and then end
// the process by the signal, as if there were no handler (shells see 130 after Ctrl-C). A signal
// that is ignored stays so (nohup). Commands that end on SIGTERM in their own way install their
// handler afterwards.
void clean_up_on_signals();

// Registers a file for removal; the result goes to forget_temporary once it is renamed or removed.
// Thread-safe. At most 256 files at a time: further ones are not removed by a signal.
int remember_temporary(const std::string& path);
void forget_temporary(int slot);

}  // namespace sauropod::base
