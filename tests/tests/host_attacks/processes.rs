//! Processes of root and of guests: signals, tracing, /proc, limits, priorities, namespaces, control groups.
use super::*;

pub(crate) fn attacks(target: &Target) -> Vec<Attack> {
    let mut attacks = Vec::new();
    for (name, pid) in &target.pids {
        let mut add = |what: &str, command: String| attacks.push(attack(format!("{what} of {name}"), command));
        for file in ["environ", "maps", "syscall", "auxv", "stack"] {
            add(file, format!("head -c 1 /proc/{pid}/{file} | grep -q ."));
        }
        add("a look at memory", format!("true </proc/{pid}/mem"));
        add("open files", format!("ls /proc/{pid}/fd/ && readlink /proc/{pid}/fd/0"));
        add("program", format!("readlink /proc/{pid}/exe"));
        add("root directory", format!("ls /proc/{pid}/root/etc"));
        add(
            "out-of-memory score",
            format!("cp /proc/{pid}/oom_score_adj /tmp/score.$$ && cat /tmp/score.$$ >/proc/{pid}/oom_score_adj"),
        );
        add("priority", format!("renice -n $(ps -o ni= -p {pid}) -p {pid}"));
        add("limits", format!("prlimit --pid {pid} --core"));
        for namespace in ["net", "ipc", "uts"] {
            add(&format!("{namespace} namespace"), format!("nsenter --target {pid} --{namespace} true"));
        }
        if pid != "1" {
            add("a signal", format!("kill -CONT {pid}"));
            // It ends with 1 when it cannot attach, and is ended by the time limit when it can.
            add("tracing", format!("timeout -s INT 1 strace -qq -o /dev/null -p {pid}; test $? -ne 1"));
            add(
                "its control group's end",
                format!("true >>/sys/fs/cgroup$(cut -d: -f3 /proc/{pid}/cgroup)/cgroup.procs"),
            );
        }
        // Nobody can run anything in the helper's view of the files, which is what root would be tried by.
        attacks.push(untried(format!("mount namespace of {name}"), format!("nsenter --target {pid} --mount true")));
        if name.ends_with("QEMU") {
            attacks.push(untried(format!("the end of {name}"), format!("kill -KILL {pid}")));
        }
    }
    attacks
}
