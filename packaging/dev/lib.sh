# shellcheck shell=bash
# What the scripts here share: words on the screen, waiting, processes remembered by pid and start time. Sourced, never run.

say() { printf '%s\n' "$*"; }
warn() { printf 'warning: %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }
need_root() { [ "$(id -u)" -eq 0 ] || die "${0##*/} must run as root: sudo $0 $*"; }
systemd_runs() { [ -d /run/systemd/system ]; }

# wait_until SECONDS COMMAND…: runs the command until it succeeds; 1 when the time is over.
wait_until() {
	local deadline=$((SECONDS + $1))
	shift
	until "$@" >/dev/null 2>&1; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.1
	done
}

# A process id can be given to another process; its start time cannot. "PID START" names one process for good. One that has ended
# and that nobody asked about is none: process 1 of a container may be such a parent.
process_id() { awk -v pid="$1" '{ sub(/^.*\) /, ""); if ($1 != "Z") print pid, $20 }' "/proc/$1/stat" 2>/dev/null; }
process_is() { [ -n "${1:-}" ] && [ "$(process_id "$1")" = "$1 ${2:-}" ]; }

# end_process PID START [SECONDS]: TERM, then KILL when it does not go. Only the very process that was remembered.
end_process() {
	local pid=$1 start=$2 patience=${3:-10} deadline
	process_is "$pid" "$start" || return 0
	kill -TERM "$pid" 2>/dev/null || true
	deadline=$((SECONDS + patience))
	while process_is "$pid" "$start"; do
		if [ "$SECONDS" -ge "$deadline" ]; then
			kill -KILL "$pid" 2>/dev/null || true
			sleep 0.2
			break
		fi
		sleep 0.1
	done
}
