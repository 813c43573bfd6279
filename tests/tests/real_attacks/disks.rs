//! What may be planted where root looks for an instance's files.
use super::*;

pub(crate) fn about_files() -> Vec<Attack> {
    vec![
        attack("the disk is a link to a file of root's", rule("file-kind"), |w| {
            w.planted("link", |dir| replace(dir.join("disk.qcow2"), |path| symlink("/etc/shadow", path)))
        }),
        attack("the disk is a link to an honest disk", rule("file-kind"), |w| {
            w.planted("link2", |dir| {
                let honest = w.place.data().join("instances/idle/disk.qcow2");
                replace(dir.join("disk.qcow2"), |path| symlink(honest, path));
            })
        }),
        attack("the seed is a link to a file of root's", rule("file-kind"), |w| {
            w.planted("seedlink", |dir| replace(dir.join("seed.iso"), |path| symlink("/etc/shadow", path)))
        }),
        attack("the disk is a link into /proc", rule("file-kind"), |w| {
            w.planted("magic", |dir| replace(dir.join("disk.qcow2"), |path| symlink("/proc/self/mem", path)))
        }),
        attack("the base image is a link", rule("file-kind"), |w| {
            let sha256 = Sha256Digest::from_bytes([0xab; 32]);
            let image = ImageRef { sha256, ..w.base };
            let path = w.place.data().join(format!("images/{sha256}.raw"));
            symlink("/etc/shadow", &path).expect("link");
            files::instance(&w.place, "baselink", &w.base);
            let met = w.ask(&w.define("baselink", files::definition(&image, Vec::new())));
            fs::remove_file(path).expect("remove");
            met
        }),
        attack("the instance's directory is a link to another's", rule("file-kind"), |w| {
            let path = w.place.data().join("instances/dirlink");
            symlink("idle", &path).expect("link");
            let met = w.ask(&w.define("dirlink", w.definition()));
            fs::remove_file(path).expect("remove");
            met
        }),
        attack("the instance's directory is a link out of data_dir", rule("file-kind"), |w| {
            let path = w.place.data().join("instances/outside");
            symlink("/etc", &path).expect("link");
            let met = w.ask(&w.define("outside", w.definition()));
            fs::remove_file(path).expect("remove");
            met
        }),
        attack("the directory of all instances is a link", rule("file-kind"), |w| {
            let (real, aside) = (w.place.data().join("instances"), w.place.data().join("aside"));
            fs::rename(&real, &aside).expect("move aside");
            symlink("aside", &real).expect("link");
            let met = w.ask(&start("idle", false));
            fs::remove_file(&real).expect("remove");
            fs::rename(&aside, &real).expect("move back");
            met
        }),
        attack("the disk has a second name", rule("file-links"), |w| {
            w.planted("hard", |dir| fs::hard_link(dir.join("disk.qcow2"), dir.join("second")).expect("link"))
        }),
        attack("the disk is another instance's disk under a second name", rule("file-links"), |w| {
            w.planted("hard2", |dir| {
                let honest = w.place.data().join("instances/idle/disk.qcow2");
                replace(dir.join("disk.qcow2"), |path| fs::hard_link(honest, path));
            })
        }),
        attack("the disk is a FIFO", rule("file-kind"), |w| {
            w.planted("fifo", |dir| {
                replace(dir.join("disk.qcow2"), |path| {
                    nix::unistd::mkfifo(&path, nix::sys::stat::Mode::from_bits_truncate(0o600)).map_err(Into::into)
                });
            })
        }),
        attack("the disk is a directory", rule("file-kind"), |w| {
            w.planted("dir", |dir| replace(dir.join("disk.qcow2"), fs::create_dir))
        }),
        attack("the disk is a socket", rule("file-kind"), |w| {
            w.planted("sock", |dir| {
                replace(dir.join("disk.qcow2"), |path| std::os::unix::net::UnixListener::bind(path).map(drop));
            })
        }),
        attack("the disk is a device", rule("file-kind"), |w| {
            w.planted("dev", |dir| {
                replace(dir.join("disk.qcow2"), |path| {
                    let (kind, mode) =
                        (nix::sys::stat::SFlag::S_IFCHR, nix::sys::stat::Mode::from_bits_truncate(0o600));
                    nix::sys::stat::mknod(&path, kind, mode, nix::sys::stat::makedev(1, 3)).map_err(Into::into)
                });
            })
        }),
        attack("the disk belongs to root", rule("file-owner"), |w| {
            w.planted("rooted", |dir| {
                let root = Some(nix::unistd::Uid::from_raw(0));
                nix::unistd::chown(&dir.join("disk.qcow2"), root, None).expect("chown");
            })
        }),
        attack("there is no disk", rule("file-missing"), |w| {
            w.planted("nodisk", |dir| fs::remove_file(dir.join("disk.qcow2")).expect("remove"))
        }),
        attack("there is no seed", rule("file-missing"), |w| {
            w.planted("noseed", |dir| fs::remove_file(dir.join("seed.iso")).expect("remove"))
        }),
        attack("there is no such base image", rule("file-missing"), |w| {
            files::instance(&w.place, "nobase", &w.base);
            let image = ImageRef { sha256: Sha256Digest::from_bytes([1; 32]), ..w.base };
            w.ask(&w.define("nobase", files::definition(&image, Vec::new())))
        }),
        attack("the disk is swapped for a link between define and start", rule("file-kind"), |w| {
            w.while_swapped("/etc/shadow")
        }),
        attack("the disk gets a second name between define and start", rule("file-links"), |w| {
            let second = w.place.data().join("instances/idle/second");
            fs::hard_link(w.place.data().join("instances/idle/disk.qcow2"), &second).expect("link");
            let met = w.ask(&start("idle", false));
            fs::remove_file(second).expect("remove");
            met
        }),
    ]
}

impl World {
    fn while_swapped(&self, target: &str) -> Met {
        let disk = self.place.data().join("instances/idle/disk.qcow2");
        let aside = self.place.data().join("instances/idle/aside");
        fs::rename(&disk, &aside).expect("move aside");
        symlink(target, &disk).expect("link");
        let met = self.ask(&start("idle", false));
        fs::remove_file(&disk).expect("remove");
        fs::rename(&aside, &disk).expect("move back");
        met
    }
}

fn replace(path: PathBuf, make: impl FnOnce(PathBuf) -> std::io::Result<()>) {
    fs::remove_file(&path).expect("remove");
    make(path).expect("plant");
}
