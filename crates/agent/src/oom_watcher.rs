//! Tells people when the kernel ended a process because the whole machine ran out of memory. A container that reaches its own
//! limit says so by itself, in its status.

use std::time::Duration;

use crablet_api::Text;
use crablet_core::oom::Reader;
use crablet_host::kernel_log::KernelLog;
use crablet_logging::ErrorChain;
use tracing::{info, warn};

use crate::recorder::{EventType, Involved, Recorder, reason};

/// What happened so long before the agent began is not told: an agent before this one did that. The agent itself may be
/// what was ended.
const LONGEST_AGO: Duration = Duration::from_secs(300);

/// Reads on until the log ends, which it does not.
pub(crate) async fn watch(mut log: Box<dyn KernelLog>, node_name: Text, recorder: Recorder) {
    let node = Involved::node(node_name);
    let mut reader = Reader::default();
    loop {
        let record = match log.next().await {
            Ok(record) => record,
            Err(error) => {
                warn!(err = %ErrorChain(&error), "Cannot read the kernel's log; processes that it ends are not told of");
                return;
            }
        };
        let Some(ended) = reader.read(&record.message) else { continue };
        if record.age > LONGEST_AGO {
            continue;
        }
        if ended.is_of_machine() {
            recorder.event(&node, EventType::Warning, reason::SYSTEM_OOM, ended.message());
        } else {
            let (process, pid, cgroup) = (ended.process, ended.pid, ended.limited);
            info!(
                process,
                pid, cgroup, "The kernel ended a process of a cgroup that reached its limit of memory"
            );
        }
    }
}
