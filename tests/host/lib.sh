# shellcheck shell=bash
# What `run` and `shell` share: the payload disk and the emulator. Sourced, never run.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
top=$(cd "$here/../.." && pwd)
. "$top/packaging/dev/lib.sh"
PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
target=${CARGO_TARGET_DIR:-$top/target}
logs=$target/test-logs/host

# made_image: the directory of the host's disk and kernel. One at a time makes it: a second one waits, and finds it there.
made_image() {
	local cache=${BCD_TEST_HOST_CACHE:-/var/cache/bcd-test-host}
	mkdir -p "$cache"
	(flock 9; "$here/image") 9>"$cache.lock"
}

# lend DIR FILE NAME: a stripped copy, since debug information is most of a test's bytes.
lend() { strip --strip-debug -o "$1/$3" "$2"; }

# packages DIR: two of the package, the same but for what dpkg takes them for. From a release build, or, with
# BCD_TEST_HOST_PROFILE=debug, from the debug build in BIN.
packages() {
	local dir=$1 bin=$2
	local -a from=()
	[ "${BCD_TEST_HOST_PROFILE:-release}" = release ] || from=(--bin-dir "$bin")
	mkdir -p "$dir"
	cp "$("$top/packaging/deb" "${from[@]}" --revision 1)" "$dir/older.deb" &&
		cp "$("$top/packaging/deb" "${from[@]}" --revision 2)" "$dir/newer.deb"
}

# payload DIR: everything that a booted host is given, in one directory.
payload() {
	local dir=$1 line image wrong
	mkdir -p "$dir/bin" "$dir/tests" "$dir/guest"
	(cd "$top" && cargo build --workspace --bins --locked --quiet)
	lend "$dir/bin" "$target/debug/bcd" bcd
	lend "$dir/bin" "$target/debug/bcd-helper" bcd-helper
	lend "$dir/bin" "$target/debug/flood" flood
	(cd "$top" && cargo test --workspace --test 'host_*' --no-run --locked 2>&1) >"$logs/build.log" || { tail -n 40 "$logs/build.log"; die "the tests do not compile"; }
	while read -r line; do
		[ "${line:0:1}" = / ] || line=$top/$line
		lend "$dir/tests" "$line" "$(basename "$line" | sed 's/-[0-9a-f]*$//')"
	done < <(sed -nE 's,^ *Executable tests/(host_[a-z_/]*)(\.rs)? \((.*)\)$,\3,p' "$logs/build.log")
	# A group that is packed and not in the list would never run, one in the list that is not packed is misspelt.
	wrong=$(diff <(sort "$here/groups") <(ls "$dir/tests")) || die "tests/host/groups (<) and the tests host_* that cargo built (>) differ:"$'\n'"$wrong"
	cp "$here/groups" "$dir/"
	packages "$dir/packages" "$dir/bin" 2>"$logs/package.log" || { tail -n 40 "$logs/package.log"; die "the package cannot be built"; }
	image=$("$top/packaging/guest/build")
	cp "$image" "$dir/guest/guest.qcow2"
	cp "$top/packaging/guest/serve" "$top/packaging/guest/certificates" "$dir/guest/"
	mkdir -p "$dir/packaging"
	cp -r "$top/packaging/dev" "$dir/packaging/"
	cp "$here"/inside/* "$dir/"
}

# disk DIR FILE: an ext4 image of a directory.
disk() {
	local mib
	mib=$(($(du -sm "$1" | cut -f1) * 5 / 4 + 32))
	mke2fs -q -t ext4 -m 0 -O ^has_journal -L payload -d "$1" "$2" "${mib}M" >/dev/null
}

# emulator IMAGE OVERLAY PAYLOAD ARGUMENT…: becomes the emulator of a host; needs no KVM, and gives one to what runs inside.
# The virtual IOMMU and the spare network card are there to pass a PCI device through. A busy machine is no broken timer (no_timer_check).
#
# One CPU, and a clock that ticks for ever (nohz=off highres=off), because QEMU 7.2 loses an interrupt now and then: a CPU that leaves
# a guest clears a bit of its pending interrupts with a plain read and write (do_vmexit in svm_helper.c), and one that another thread
# sets meanwhile is gone. A lost timer of one shot is never armed again: that CPU stays in its guest for good, and a second one waits
# for it. With two CPUs on two threads the host's kernel was also seen to break. Nested page tables of five levels (la57) are a
# way of QEMU's that nobody else goes.
emulator() {
	local image=$1 overlay=$2 payload=$3 append=$4
	shift 4
	exec nice -n 5 qemu-system-x86_64 -name bcd-test-host -nodefaults -display none -no-reboot \
		-accel tcg,thread=single -cpu max,la57=off -smp 1 -m "${BCD_TEST_HOST_MIB:-3072}" \
		-machine q35,kernel-irqchip=split -device intel-iommu,intremap=on,caching-mode=on \
		-kernel "$image/vmlinuz" -initrd "$image/initrd" \
		-append "root=/dev/vda rw console=ttyS0 intel_iommu=on no_timer_check nohz=off highres=off panic=1 $append" \
		-drive "file=$overlay,if=none,id=root,format=qcow2,cache=writeback" -device virtio-blk-pci,drive=root \
		-drive "file=$payload,if=none,id=payload,format=raw,readonly=on" -device virtio-blk-pci,drive=payload \
		-device virtio-rng-pci -netdev user,id=nowhere,restrict=on -device e1000e,netdev=nowhere "$@"
}

# fresh IMAGE OVERLAY: a disk over the image's; what is written to it is thrown away with it.
fresh() { qemu-img create -q -f qcow2 -b "$1/root.img" -F raw "$2"; }
